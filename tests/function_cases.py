"""Functions between two rows of a match, as texts over `a.column` and `column`, and the rows on
whose pairs Spark and the worker are compared."""

from __future__ import annotations

COLUMNS = "i n t x f d e s k b dt ts z l m w o h y u".split()  # noqa: SIM905
ROWS = r"""
    (1, 5L, 1Y, 1.5D, 1.5F, 2.50BD, 1.500000000000000000BD, 'a', 'abc', TRUE,
     DATE '2024-02-29', TIMESTAMP '2024-03-10 01:59:59.999999', TIMESTAMP_NTZ '2024-03-10 02:30:00',
     ARRAY('a', 'b'), ARRAY(3, 1, 2), ARRAY(1.5D, -0.0D), MAP('a', 1, 'abc', 2), X'01ff',
     INTERVAL '1 02:03:04.5' DAY TO SECOND, INTERVAL '1-1' YEAR TO MONTH),
    (-2, -9007199254740993L, -128Y, DOUBLE('NaN'), FLOAT('-Infinity'), -0.05BD,
     -99999999999999999999.999999999999999999BD, '', ' ab%_ ', FALSE,
     DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59.5', TIMESTAMP_NTZ '1900-01-31 00:00:00',
     ARRAY(), ARRAY(1, NULL), ARRAY(DOUBLE('NaN')), MAP(), X'', INTERVAL '-0.000001' SECOND,
     INTERVAL '-1' MONTH),
    (0, 0L, 0Y, 0.0D, -0.0F, 0.00BD, 0.000000000000000001BD, 'Straße', 'a,b,,c', NULL,
     DATE '2023-01-31', TIMESTAMP '2024-11-03 05:30:00Z', TIMESTAMP_NTZ '2024-11-03 01:30:00.25',
     ARRAY('', NULL, 'ß'), ARRAY(2), ARRAY(), MAP('', NULL), X'e4bda0', INTERVAL '0' SECOND,
     INTERVAL '0' MONTH),
    (3, 9223372036854775807L, 127Y, -2.5D, 0.1F, 99999999.99BD, 3.000000000000000000BD,
     '你好😀', 'Xx1Xx2', TRUE,
     DATE '2024-12-30', TIMESTAMP '2024-11-03 06:30:00Z',
     TIMESTAMP_NTZ '2024-12-30 23:59:59.999999',
     ARRAY('abc', 'a,b,,c'), ARRAY(-1, 0, 3), ARRAY(0.0D, 2.5D), MAP('abc', 7, 'a', -1), X'ff',
     INTERVAL '100' DAY, INTERVAL '12' MONTH),
    (5, 7L, 10Y, 1234567.125D, 16777216.0F, 0.01BD, 0.333333333333333333BD, 'ab', 'banana', FALSE,
     DATE '1582-10-15', TIMESTAMP '0999-06-15 12:34:56', TIMESTAMP_NTZ '2024-01-31 12:00:00',
     ARRAY('ab'), ARRAY(5, 5), ARRAY(1234567.125D), MAP('ab', 5), X'00',
     INTERVAL '-2 03:00:00' DAY TO SECOND, INTERVAL '-2-6' YEAR TO MONTH),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL, NULL, NULL)
"""

STRINGS = """
concat(a.s, k) | a.s || '-' || k | concat(a.s, i) | concat(a.k, d, x) | concat(a.h, h)
k LIKE a.s || '%' | k LIKE concat('%', a.s, '_') | k NOT LIKE a.s | upper(k) ILIKE a.k || '%'
k LIKE concat('%', a.s) ESCAPE '/'
k RLIKE a.s | k RLIKE concat('^', a.s, '$') | regexp_like(k, a.s || '[a-z]*') | k NOT RLIKE a.s
regexp_extract(concat(a.k, k), '([a-z]+)(.)', 2) | regexp_replace(k, a.s, '<$0>')
regexp_replace(concat(a.s, k), '(a)(b)?', '$2$1') | regexp_count(k, a.s)
regexp_extract(concat(a.s, k), '^[^\\\\w]|(?:x*?){1,2}b$', 0)
regexp_substr(concat(a.k, k), 'a.a')
startswith(k, a.s) | endswith(k, a.s) | contains(k, a.s) | instr(k, a.s) | locate(a.s, k)
locate(a.s, k, i) | locate(a.s, k, a.i) | position(a.s IN k) | position(a.s, k, 2)
substring(k, a.i) | substring(k, a.i, i) | substr(a.k, i, 2) | left(k, a.i) | right(k, a.i)
substring(k FROM a.i FOR 2) | substring_index(k, a.s, i) | substring_index(a.k, 'a', i)
substring_index(a.k, ',', i) | split_part(k, a.s, 1) | split_part(a.k, s, -1)
split_part(a.k, ',', nullif(i, 0))
lpad(a.s, i, k) | rpad(a.s, i + 3, k) | lpad(s, a.i) | rpad(a.k, 2 + i, '')
repeat(s, a.i) | replace(k, a.s, 'X') | replace(k, a.s) | replace(a.k, s, k)
translate(k, a.s, 'xy')
translate(a.k, 'abX', s) | trim(a.s FROM k) | trim(LEADING a.s FROM k)
trim(TRAILING a.s FROM k)
btrim(k, a.s) | ltrim(a.s, k) | rtrim(a.s, k) | trim(concat(a.k, k)) | ltrim(concat(a.k, k))
rtrim(concat(a.k, k)) | overlay(k PLACING a.s FROM 2) | overlay(k PLACING a.s FROM i FOR 1)
upper(concat(a.s, k)) | lower(concat(a.s, k)) | initcap(concat(a.s, ' ', k))
reverse(concat(a.s, k))
length(concat(a.s, k)) | char_length(a.s || k) | octet_length(concat(a.s, k))
bit_length(a.s || k)
length(concat(a.h, h)) | ascii(concat(a.s, k)) | char(a.i + n % 300) | space(a.i + i)
levenshtein(k, a.k) | levenshtein(k, a.s, 2) | soundex(concat(a.k, k)) | soundex(concat(a.s, k))
concat_ws(a.s, k, s) | concat_ws(',', a.l, k) | concat_ws(s, a.l, l) | find_in_set(a.s, k)
hex(concat(a.s, k)) | hex(a.n - i) | md5(concat(a.s, k)) | sha1(a.s || k) | sha2(a.s || k, 256)
sha2(concat(a.h, h), 512) | crc32(a.s || k) | base64(concat(a.h, h)) | elt(2, a.s, k)
elt(nullif(abs(i), 5), a.s, k, s) | unhex(concat(hex(a.k), hex(k)))
split(k, a.s) | split(concat(a.k, k), '[a,]') | split(concat(a.k, k), 'a', i)
split(a.k || k, '')
substring(concat(a.h, h), i, 2) | startswith(concat(a.h, h), h) | concat(a.s, b)
concat(a.s, dt)
concat(a.s, ts) | concat(a.s, z) | concat(a.s, f) | concat(a.s, e) | concat(a.s, CLASSIFIER())
"""
NUMBERS = """
a.d / nullif(d, 0) | d / a.e | a.e * e | a.e + e | a.e - d | a.e % e | a.d * e
i / nullif(a.d, 0)
a.d / d | mod(a.e, d) | a.e * e * e
round(d / nullif(a.d, 0), 2) | round(a.x * x, 1) | round(a.x + x) | round(a.f + f, 2)
round(a.e - d, 3)
round(a.x * x, -2) | round(a.i + i, -1) | round(a.n - i, -3) | round(a.d - d, -1)
round(a.d + d, 1)
bround(a.x + x) | bround(a.d + d, 1) | bround(a.x / 4 + x, 1) | bround(a.i + i, -1)
floor(a.x + x) | ceil(a.x + x) | floor(a.d - d) | ceil(a.d + d) | ceiling(a.e - d)
floor(a.i + i)
ceil(a.x * x * 1e20) | floor(a.f + f) | rint(a.x + x) | sign(a.d - d) | signum(a.x - x)
sign(a.i - i)
pmod(a.i, nullif(i, 0)) | pmod(a.x, x) | pmod(a.d, nullif(d, 0)) | pmod(a.n, i) | pmod(a.t, t)
pmod(-a.x, 2.25D + x) | a.i & i | a.n | n | a.i ^ i | ~(a.i + i) | a.t & t | shiftleft(i, a.i)
shiftright(a.n, i) | shiftrightunsigned(a.i, i) | i << a.i | n >> a.i | bit_count(a.i - i)
bin(a.n - i) | nanvl(a.x, x)
sqrt(a.x + x) | exp(a.x - x) | exp(a.x / 100) | pow(abs(a.x), x / 3) | power(a.x, i)
power(a.i, i)
pow(a.x, x) | power(a.x + 2, 0.5) | ln(abs(a.x - x)) | ln(x / a.x) | log(2, a.x + x)
log(a.x, x)
log2(a.x + x) | log10(abs(a.x * x)) | log(a.x + x) | ln(d / nullif(a.d, 0))
degrees(a.x + x) | radians(a.x + x)
try_divide(x, a.x) | try_divide(d, a.d) | try_add(a.i, i) | try_subtract(a.n, n)
try_multiply(a.n, n)
try_divide(i, a.i)
"""
# Spark takes them from the processor: they may differ from the C library's in the last digit.
INEXACT = """
sin(a.x + x) | cos(a.x - x) | tan(a.x + x) | asin(a.x / x) | acos(a.x / 3 + x / 9)
atan(a.x + x)
atan2(a.x, x) | sinh(a.x) + cosh(x) | tanh(a.x + x) | hypot(a.x, x)
"""
TIMES = """
date_add(dt, a.i) | date_sub(a.dt, i) | dt + a.i | dt - a.i | datediff(dt, date_add(a.dt, i))
add_months(dt, a.i) | add_months(a.dt, i * 12) | months_between(ts, a.ts)
months_between(dt, a.dt)
months_between(ts, a.dt, false) | last_day(date_add(a.dt, i)) | next_day(date_add(a.dt, i), 'MO')
next_day(dt, if(a.i > 0, 'tue', 'SUNDAY'))
year(date_add(a.dt, i)) | quarter(date_add(a.dt, i)) | month(date_sub(a.dt, i))
day(date_add(a.dt, i))
dayofweek(date_add(a.dt, i)) | weekday(date_add(a.dt, i)) | dayofyear(date_add(a.dt, i))
weekofyear(date_add(a.dt, i)) | extract(YEAROFWEEK FROM date_add(a.dt, i))
extract(DAYOFWEEK_ISO FROM date_add(a.dt, i)) | extract(WEEK FROM greatest(a.ts, ts))
extract(SECOND FROM greatest(a.ts, ts)) | date_part('month', greatest(a.ts, ts))
hour(greatest(a.ts, ts)) | minute(least(a.ts, ts)) | second(greatest(a.ts, ts))
hour(greatest(a.z, z))
year(greatest(a.ts, ts)) | day(least(a.ts, ts))
trunc(date_add(a.dt, i), 'MM') | trunc(date_add(a.dt, i), 'week')
trunc(dt, if(a.i > 0, 'YEAR', 'Q'))
trunc(date_add(a.dt, i), 'quarter')
date_trunc('HOUR', greatest(a.ts, ts)) | date_trunc('DAY', least(a.ts, ts))
date_trunc('week', greatest(a.ts, ts)) | date_trunc('MONTH', greatest(a.ts, ts))
date_trunc('minute', greatest(a.ts, ts)) | date_trunc(if(a.i > 0, 'SECOND', 'year'), ts)
date_trunc('QUARTER', date_add(a.dt, i)) | date_trunc('millisecond', greatest(a.z, z))
ts + a.y | a.ts - y | ts - a.u | a.ts + u | dt + a.u | a.dt - u | dt + a.y | z + a.u | z - a.y
a.u + ts | (greatest(a.ts, ts)) - INTERVAL 1 MONTH | greatest(a.ts, ts) + INTERVAL '1' DAY
greatest(a.ts, ts) - least(a.ts, ts) | greatest(a.dt, dt) - a.z | a.y / 3 + y
timestampadd(MINUTE, a.i, ts) | timestampadd(HOUR, a.i * 30, ts) | timestampadd(DAY, a.i, ts)
timestampadd(MONTH, a.i, ts) | timestampadd(QUARTER, a.i, z) | timestampadd(YEAR, a.i, dt)
timestampadd(WEEK, a.i, dt) | dateadd(DAY, a.i, dt) | dateadd(dt, a.i)
timestampdiff(MONTH, a.ts, ts) | timestampdiff(YEAR, a.dt, ts) | timestampdiff(QUARTER, ts, a.ts)
timestampdiff(DAY, greatest(a.ts, ts), ts) | timestampdiff(HOUR, a.z, greatest(a.ts, ts))
unix_timestamp(greatest(a.ts, ts)) | unix_micros(least(a.ts, ts))
unix_seconds(greatest(a.ts, ts))
unix_millis(greatest(a.ts, ts)) | unix_date(date_add(a.dt, i)) | date_from_unix_date(a.i + i)
timestamp_millis(a.i - i) | timestamp_micros(a.i - i)
to_date(greatest(a.ts, ts)) | CAST(greatest(a.ts, ts) AS DATE)
CAST(date_add(a.dt, i) AS TIMESTAMP)
make_date(2000 + a.i, 1 + abs(i), 29) | CAST(greatest(a.ts, ts) AS TIMESTAMP_NTZ)
date_add(a.dt, i) > ts | greatest(a.ts, ts) = date_add(dt, 1) | CAST(least(a.z, z) AS TIMESTAMP)
"""
ARRAYS = """
array_contains(a.l, k) | array_contains(a.m, i) | array_contains(a.m, n) | array_contains(a.w, x)
array_contains(split(a.k, ','), s) | array_position(a.l, k) | array_position(a.m, i)
arrays_overlap(a.l, l) | arrays_overlap(a.m, m) | arrays_overlap(a.w, w)
size(array_intersect(a.l, l)) | array_union(a.l, l) | array_except(a.m, m)
array_intersect(a.m, m)
array_distinct(concat(a.m, m)) | concat(a.l, l) | array_max(concat(a.m, m))
array_min(concat(a.w, w))
array_max(concat(a.w, w)) | sort_array(concat(a.m, m)) | sort_array(concat(a.w, w), false)
size(split(concat(a.k, k), 'a')) | cardinality(concat(a.m, m)) | array_size(concat(a.m, m))
element_at(a.m, nullif(i, 0)) | a.m[i] | a.l[abs(i)] | get(a.l, i)
try_element_at(a.l, nullif(i, 0))
element_at(split(a.k || k, ','), -1) | split(a.k || k, ',')[0] | element_at(a.o, s) | a.o[k]
map_contains_key(a.o, k) | array(a.s, k) | array(a.i, n) | array_contains(array(a.i, 3), i)
array_append(a.m, i) | array_remove(a.m, i) | array_remove(a.l, s) | slice(a.m, 2, abs(i))
array_join(concat(a.l, l), ',') | array_join(concat(a.l, l), s, '?') | reverse(concat(a.m, m))
array_prepend(a.l, k)
"""
CASTS = """
CAST(a.i + i AS STRING) | CAST(a.d - d AS STRING) | CAST(a.e / 3 AS STRING)
CAST(a.x * x AS STRING)
CAST(a.f + f AS STRING) | CAST(a.x + x AS INT) | CAST(a.x * x * 1e20 AS BIGINT)
CAST(a.n + i AS INT)
CAST(a.i * i AS TINYINT) | CAST(a.d + d AS INT) | CAST(a.e - d AS BIGINT)
CAST(a.d * d AS DECIMAL(6,1))
CAST(a.x + x AS DECIMAL(9,2)) | CAST(a.i + i AS BOOLEAN) | CAST(a.x - x AS BOOLEAN)
CAST(a.x * x AS FLOAT) | CAST(a.d + d AS FLOAT) | CAST(concat(a.i, i) AS INT)
CAST(concat(a.i, i) AS DOUBLE)
CAST(concat(a.i, i, 'd') AS DOUBLE) | CAST(concat(' ', a.d, i) AS DECIMAL(12,3))
CAST(substring(concat(a.b, b), 1, 4) AS BOOLEAN)
CAST(substring(concat(a.dt, k), 1, 10) AS DATE) | CAST(least(a.ts, ts) AS STRING)
CAST(least(a.z, z) AS STRING)
CAST(least(a.dt, dt) AS STRING) | try_cast(concat(a.i, i) AS INT) | try_cast(a.n + 0 * i AS INT)
(a.x + x)::string | string(a.x / 3 + x) | int(a.d + d) | try_cast(concat(a.k, i) AS INT)
CAST(least(a.ts, ts) AS BIGINT) | CAST((a.i > i) AS INT) | CAST((a.i > i) AS STRING)
CAST(a.x / 7 + x * 1e-5 AS STRING)
CAST(pow(2, a.i * 11 - i) AS STRING) | CAST(a.x * 1e7 + x AS STRING)
"""
NESTED = """
exists(a.l, x -> x = k) | forall(a.l, x -> x <> k) | filter(a.m, x -> x > i)
transform(a.m, x -> x + i) | transform(a.m, (x, n) -> x * n + a.i)
aggregate(a.m, 0, (acc, x) -> acc + x * i)
aggregate(a.m, 0L, (acc, x) -> acc + x * n, acc -> acc % 7)
aggregate(a.m, 0, (acc, x) -> if(x > i, acc + 1, acc)) > 1
zip_with(a.m, m, (x, y) -> coalesce(x, 0) - coalesce(y, i))
map_filter(a.o, (key, v) -> key = k OR v > i) | transform_values(a.o, (key, v) -> v + i)
transform_keys(a.o, (key, v) -> concat(key, k)) | map_zip_with(a.o, o, (key, v, w) -> v + w)
exists(a.m, x -> x / i > 1) | exists(a.m, x -> exists(m, y -> y = x))
transform(a.l, x -> upper(concat(x, k))) | filter(a.l, x -> x LIKE k || '%')
transform(a.w, x -> x + get(w, 0)) | size(filter(a.m, x -> x IS NOT NULL AND x <> i))
array_contains(transform(a.m, x -> x + 1), i) | filter(a.w, y -> y > a.x AND y < 100)
exists(array(a.s, k), x -> x = 'ab') | transform(a.m, x -> named_struct('v', x, 'w', i))
exists(transform(a.m, x -> struct(x AS v, i AS w)), e -> e.v > e.w)
named_struct('x', a.i, 'y', k).y | struct(a.i AS x, k).x
named_struct('x', a.i, 'y', k) = named_struct('x', i, 'y', a.k)
struct(a.i, i) IN (struct(1, 2), struct(a.i, a.i + 1)) | (a.i, k) = (i, a.k)
(a.i, i) IN ((1, 1), (0, a.i)) | named_struct('x', a.x, 'y', i) < named_struct('x', x, 'y', a.i)
named_struct('x', a.x, 'y', i) <=> named_struct('x', x, 'y', a.i)
named_struct('x', a.x, 'y', k) <> named_struct('x', x, 'y', a.k) | map('a', a.i, 'b', i)
map_keys(map(a.k, i)) | map_values(map(a.k, i, 'zz', 3))
map_entries(map_concat(a.o, map('q', i))) | map_concat(a.o, o)
map_from_arrays(array(a.s, 'q'), array(i, 2)) | map_from_entries(array(struct(a.s, i)))
map_keys(transform_values(a.o, (k1, v) -> i)) | a.l = l | a.m < m | a.w >= w | a.l <=> l
a.m IN (m, array(i)) | coalesce(a.m, m) | CASE WHEN a.i > i THEN a.l ELSE l END
if(a.i > i, a.m, m) | least(a.m, m) | greatest(a.w, w) | flatten(array(a.l, l))
arrays_zip(a.l, m) | array_repeat(a.k, i) | array_insert(a.m, i, a.i)
array_compact(concat(a.l, l)) | sequence(a.i, i) | sequence(a.i, i, nullif(i, 0))
array_sort(concat(a.m, m)) | array_sort(concat(a.w, w)) | cardinality(flatten(array(a.l, l)))
nvl2(a.k, k, s) | ifnull(a.k, k) | nvl(a.i, i) | sort_array(array(struct(a.i, k), struct(i, a.k)))
array_max(array(struct(a.x, k), struct(x, a.k))) | arrays_zip(a.l, m)[0].l
transform(arrays_zip(a.m, l), p -> p.m + i)
aggregate(a.l, '', (acc, x) -> concat(acc, coalesce(x, k)))
transform(sequence(1, abs(a.i) + 1), n -> n * i) | exists(array(a.o[k], i), y -> y > 1)
array_distinct(transform(a.w, x -> x * x)) | forall(a.m, x -> x > i) AND exists(m, x -> x < a.i)
filter(a.m, (x, n) -> n < i)
transform(a.m, x -> CASE WHEN x > i THEN 'big' WHEN x = i THEN k ELSE NULL END)
aggregate(a.m, struct(0 AS s), (acc, x) -> struct(acc.s + x + i AS s), acc -> acc.s / 2)
array_contains(transform(a.l, x -> lower(concat(x, k))), k) AND exists(l, x -> x || k = a.k)
"""
OTHERS = """
hash(a.i, k) | hash(a.n, i, a.t, t) | hash(a.x, f, a.f) | hash(a.d, e, a.e, d) | hash(a.dt, ts, z)
hash(a.b, h, a.s) | hash(a.l, m, a.w) | hash(struct(a.i, k), named_struct('u', a.l))
hash(a.y, u) | xxhash64(a.i, k) | xxhash64(a.n, i, a.t, t) | xxhash64(a.x, f, a.f)
xxhash64(a.d, e, a.e, d) | xxhash64(a.dt, ts, z) | xxhash64(a.b, h, a.s) | xxhash64(a.l, m, a.w)
xxhash64(a.k || k || a.k || 'abcdefghijklmnopqrstuvwxyz0123456789', i)
hash(concat(a.k, k, 'abcdefg')) | abs(hash(a.k, k)) % 3
format_string('%s-%5s|%-6s|%.2s', a.k, i, b, a.s)
format_string('%d %05d %+d %,d %x', a.i, i, n, a.n, n)
printf('%.1f %+08.2f %s%% %,f', a.x, x / 3, k, a.f * f)
format_string(concat('%s', '%n'), a.k || k) | format_number(a.x + x, 2)
format_number(a.d + d, 1) | format_number(a.i * i, 0) | format_number(a.n - i, 3)
conv(concat(a.i, i), 10, 16) | conv(a.k, 16, i + 8) | conv(concat(a.n, ''), 10, -2 - abs(i))
factorial(a.i + i) | cbrt(a.x + x) | cbrt(a.x / (x + 1e-3)) | width_bucket(a.x, x, 10.5, i)
width_bucket(x, 5, a.x, 4) | regexp_extract_all(concat(a.k, k), '([a-z])(.)?', 2)
regexp_instr(concat(a.k, k), 'b|n') | typeof(a.i + i) = 'int' AND a.i > i | equal_null(a.k, k)
date_format(greatest(a.ts, ts), 'yyyy-MM-dd HH:mm:ss.SSS')
date_format(date_add(a.dt, i), 'EEE, d MMMM yy') | date_format(least(a.ts, ts), "h:m:s a '' q")
date_format(greatest(a.z, z), 'EEEE''x''MMM') | from_unixtime(a.i * 86400 * i)
from_unixtime(a.i + i, 'dd.MM.yyyy HH')
date_format(timestampadd(YEAR, i * 4000, a.ts), 'yyyy|y|yy')
"""


def texts(group: str) -> list[str]:
    return [text.strip() for line in group.strip().splitlines() for text in line.split(" | ")]


GROUPS = {
    "strings": texts(STRINGS),
    "numbers": [text for text in texts(NUMBERS) if text not in {"a.n", "n"}] + ["a.n | n"],
    "inexact": texts(INEXACT),
    "times": texts(TIMES),
    "arrays": texts(ARRAYS),
    "casts": texts(CASTS),
    "nested": texts(NESTED),
    "others": texts(OTHERS),
}
# ANSI, and the time zone of the session.
SETTINGS = {"ansi": (True, "America/New_York"), "plain": (False, "Europe/Berlin")}
