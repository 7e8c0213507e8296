"""What a schema refuses: every message names the place, the requirement, the value and the remedy.

A line of a table is an entry, an arrow, and the message. ` ; ` ends a line of TOML, `...` stands for any text.
"""

from __future__ import annotations

import re

import pytest

from sklar.errors import SchemaError
from sklar.public.schema import Schema
from tests.public import cases, one

ENTRIES = r"""
type = "text" -> type must be one of categorical, boolean, integer, real, date, datetime, ... got 'text'.
type = ['real'] -> type must be one of categorical, boolean, integer, real, date, datetime, ... got ['real'].
weekday -> type = 'weekday' is part of a column. Add part_of = 'COLUMN'.
date ; part_of = "age" ; edges = ["2000-01-01", "2001-01-01"] -> a part must not ... Call it 'age.date'.
date ; part_of = "at" ; edges = ["2000-01-01", "2001-01-01"] ; special = ["N"] -> a part of a column takes no special...
date ; part_of = "at" ; edges = ["2000-01-01", "2001-01-01"] ; missing = "" ; outside = "missing" -> a ... no outside...
date ; part_of = "at" ; edges = ["2000-01-01", "2001-01-01"] ; missing = "9999-12-31 00:00" -> missing must be no...
date ; part_of = "at" ; edges = ["2000-01-01", "2001-01-01"] ; format = "%H:%M" -> format must tell a day, a month ...
date ; part_of = "" ; edges = ["2000-01-01", "2001-01-01"] -> part_of must be the name of a column of moments, got ''.
weekday ; part_of = "at" ; edges = [0, 7] -> unknown key 'edges'...
integer ; edges = [0, 9] ; prefix = 2 -> unknown key 'prefix'...
categorical ; prefix = 0 -> prefix must be a number of characters, got 0. Write prefix = 2.
categorical ; prefix = 2 ; length = 2 -> length must be above prefix. Correct one.
categorical ; values = ["a"] ; length = 5 -> length must be above prefix. Correct one.
categorical ; length = -1 -> length must be a number of characters, got -1. Write length = 5.
categorical ; prefix = 5 -> prefix without values must be at most 4, got 5. List values.
categorical ; prefix = 1 ; values = ["A", "BC"] -> values must be as long as prefix = 1, got 'BC'. Cut them.
boolean ; values = ["a"] -> unknown key 'values'. Known keys are description, labels, ... type, unit, weight.
real ; edges = [0, 1] ; other = true -> unknown key 'other'. Known keys are bins, ... type, unit, weight.
categorical -> values must list the categories, got None. Write values = ['a', 'b'].
categorical ; values = "a" -> values must list the categories, got 'a'. Write values = ['a', 'b'].
categorical ; values = ["a", 1] -> values must be all texts or all whole numbers, got 1. Quote it.
categorical ; values = [true, false] -> values must be all texts or all whole numbers, got True. Quote it.
categorical ; values = [1, 9223372036854775808] -> whole numbers must fit in 64 bits, got ... Quote all values.
categorical ; values = ["a", "a"] -> levels must differ, got 'a' twice. Remove or rename one.
categorical ; values = ["a", "?"] ; missing = "?" -> levels must differ, got '?' twice. Remove or rename one.
categorical ; values = ["a", "other"] ; other = true -> levels must differ, got 'other' twice. Remove or rename one.
categorical ; values = ["a", ""] ; missing = "" -> values must not list '' beside missing, ... texts. Remove one.
categorical ; values = ["a"] ; other = 1 -> other must be true or false, got 1.
boolean ; provenance = "hearsay" -> provenance must be 'public' (public knowledge) or 'rows' ... rows), got 'hearsay'.
boolean ; missing = 9 -> missing must be the text that stands for a missing value, got 9.
boolean ; missing = "N" -> missing must not be a text for true or false, got 'N'. Use another text.
integer ; edges = [0, 40, 40] -> edges must increase, got 40 after 40. Remove one.
date ; edges = ["1990-01-01", "1980-01-01"] -> edges must increase, got 1980-01-01 after 1990-01-01. Remove one.
datetime ; edges = ["1990-01-01T10:00", "1990-01-01T10:00Z"] -> edges must increase, got ... Remove one.
integer ; edges = 5 -> edges must list at least two numbers or dates, got 5.
integer ; edges = [0, 1] ; low = 0 -> give either edges or low, high and bins, not both. Remove low.
integer -> needs edges = [...], or low, high and bins. Add them from public knowledge.
real ; low = 0 ; high = 9 ; bins = 0 -> bins must be a whole number from 1 to 40000, got 0.
real ; low = 0 ; high = 9 ; bins = true -> bins must be a whole number from 1 to 40000, got True.
real ; low = 9 ; high = 9 ; bins = 2 -> low must be below high, got 9 and 9.
integer ; low = 0 ; high = 3 ; bins = 4 -> 4 bins do not fit between 0 and 3. Use fewer.
real ; edges = [0, inf] -> edges must be finite numbers, got inf.
real ; edges = [nan, 1] -> edges must be finite numbers, got nan.
real ; edges = [0, "1"] -> edges must be finite numbers, got '1'.
integer ; edges = [false, 1] -> edges must be finite numbers, got False.
integer ; edges = [0, 1.5] -> edges of an integer must be whole and below 2**63, got 1.5. Use real.
integer ; edges = [0, 9223372036854775808] -> edges of an integer must be whole and below ... Use real.
date ; edges = ["1990-01-01", "1990-02-30"] -> edges of a date must be ISO texts ('1990-01-31'), got '1990-02-30'.
date ; edges = ["1990-01-31T12:00:00", "2000-01-01"] -> edges of a date must be ISO ... got '1990-01-31T12:00:00'.
datetime ; edges = ["0001-01-01T00:00:00+10:00", "2000-01-01"] -> edges of a datetime must be ISO texts...
date ; edges = [1990, 2000] -> edges of a date must be ISO texts ('1990-01-31'), got 1990.
datetime ; edges = ["soon", "later"] -> edges of a datetime must be ISO texts ('1990-01-31'), got 'soon'.
integer ; edges = [0, 1] ; outside = "drop" -> outside must be 'clip' or 'missing', got 'drop'.
integer ; edges = [0, 1] ; outside = "missing" -> outside = 'missing' needs a missing level. ... = '' or another text.
date ; edges = ["1900-01-01", "2000-01-01"] ; missing = "1900-01-01" -> missing must not lie ... the edges past it.
integer ; edges = [0, 10, 20] ; points = 5 -> points must list numbers within the edges, got 5. Write points = [0, 40].
integer ; edges = [0, 10, 20] ; points = ["x"] -> points must be finite numbers, got 'x'.
integer ; edges = [0, 10, 20] ; points = [5, 5] -> points must differ, got 5 twice. Remove one.
integer ; edges = [0, 10, 20] ; points = [20] -> points must lie within the edges, got 20. ... it under special.
real ; edges = [0, 1e17] ; points = [1e16] -> points must be smaller than 2**53 in size, got ... Leave it in its bin.
date ; edges = ["2000-01-01", "2001-01-01"] ; points = [5] -> points of a date must be ISO texts ('1990-01-31'), got 5.
integer ; edges = [0, 10, 20] ; special = 5 -> special must list texts or numbers, got 5. Write special = ['N', -9].
integer ; edges = [0, 10, 20] ; special = [true] -> special must list texts or numbers, got ... special = ['N', -9].
integer ; edges = [0, 10, 20] ; special = [" "] -> special must not list an empty text, which ... Use missing = ''.
integer ; edges = [0, 10, 20] ; special = ["N", "N"] -> special values must differ, got 'N' twice. Remove one.
integer ; edges = [0, 10, 20] ; special = [-9, "-9.0"] -> special values must differ, got '-9' twice. Remove one.
integer ; edges = [0, 10, 20] ; special = [0.5] -> special numbers must be whole numbers ... in size, got 0.5.
real ; edges = [0, 1] ; special = ["inf"] -> special numbers must be finite numbers smaller ... in size, got 'inf'.
boolean ; special = ["No"] -> special must not list a text for true or false, got 'No'. Use other texts.
categorical ; values = ["a", "N"] ; special = ["N"] -> 'N' is listed under values and under special. Remove one.
integer ; edges = [0, 10, 20] ; special = [-1] ; missing = "-1.0" -> '-1' is listed under ... text too. Remove one.
integer ; edges = [0, 10, 20] ; special = [5] ; points = [5] -> 5 is listed under points and under special. Remove one.
integer ; edges = [0, 2, 9] ; points = [0] ; special = [1] -> the bin [0, 2) holds nothing ... them in their bin.
real ; edges = [0, 5e-324, 9] ; points = [0] -> the bin [0.0, 5e-324) holds nothing but ... them in their bin.
real ; edges = [1, 1.0000001192092896, 9] ; points = [1] ; output = "float32"
    -> the bin [1.0, 1.0000001192092896) holds nothing but points and special values, ... leave them in their bin.
datetime ; edges = ["2000-01-01T00:00:00", "2000-01-01T00:00:01"] ; points = ["2000-01-01"]
    -> the bin [2000-01-01T00:00:00, 2000-01-01T00:00:01) holds nothing but points ... leave them in their bin.
integer ; edges = [0, 10, 20] ; special = ["N"] ; output = "int32" -> output 'int32' does not ... text 'N'; use string.
integer ; edges = [0, 10, 20] ; special = [-9] ; output = "uint8" -> output 'uint8' holds 0 to 255 only.
real ; edges = [0, 1] ; points = [0.1] ; output = "float32" -> output 'float32' does not hold 0.1 exactly; use float64.
real ; edges = [0, 1] ; special = [-0.125] ; output = "decimal(5, 2)" -> output 'decimal(5, ... after the point.
real ; edges = [0, 1] ; special = [1000] ; output = "decimal(5, 2)" -> output 'decimal(5, 2)' ... 5 digits and no more.
categorical ; values = [1] ; special = ["N"] ; output = "int8" -> output 'int8' holds whole numbers only...
boolean ; special = ["N/A"] ; output = "bool" -> output 'bool' does not hold the special text 'N/A'...
integer ; edges = [0, 10, 20] ; step = 0 -> step must be a positive number, got 0. Write step = 100, or step = 0.01.
integer ; edges = [0, 10, 20] ; step = 0.5 -> step of an integer must be whole, got 0.5. Use 1 or more.
integer ; edges = [0, 10, 20] ; step = 4 -> edges and points must be multiples of the step of 4, got 10. Move it.
integer ; edges = [0, 10, 20] ; step = 5 ; points = [7] -> edges and points must be multiples ... of 5, got 7. Move it.
real ; edges = [0, 0.25] ; step = 0.1 -> edges and points must be multiples of the step of 0.1, got 0.25. Move it.
real ; edges = [0, 1e300] ; step = 2.5 -> step must not be that fine, got 2.5. Leave it out.
real ; edges = [0, 1e15] ; format = "$1,234.50" -> format must not be that fine, got $1,234.50. Leave it out.
real ; edges = [0, 1] ; format = "a lot" -> format must show a number with its signs, got 'a lot'. Write '$1,234.50'.
real ; edges = [0, 1] ; format = 7.5 -> format must show a number with its signs, got 7.5. Write '$1,234.50'.
real ; edges = [0, 1] ; format = "(12" -> format must show a number with its signs, got '(12'. Write '$1,234.50'.
real ; edges = [0, 1] ; format = "1,234,5" -> format must show a number with its signs, got '1,234,5'. Write ...
integer ; edges = [0, 1] ; format = "$1.50" -> format must show a whole number ... got '$1.50'. Write '$1,234'.
real ; edges = [0, 0.25] ; format = "12.5%" -> edges and points must be ... what '12.5%' tells, got 0.25. Move it.
real ; edges = [0, 1] ; step = 0.01 ; format = "12.5%" -> the step must be one that '12.5%' can tell. Use a larger one.
datetime ; edges = ["2000-01-01", "2001-01-01"] ; format = "serial" -> format must tell a day, ..., got 'serial'...
integer ; edges = [0, 1] ; output = "date32" -> output 'date32' does not hold an integer; use one of ...
real ; edges = [0, 1] ; step = 0.01 ; output = "decimal(5, 1)" -> output 'decimal(5, 1)' ... after the point.
duration ; edges = ["0:00", "1:00"] ; step = 0.5 ; output = "duration[s]" -> output ... edges of whole s.
duration ; edges = ["0:00", "3000000:00"] ; output = "duration[ns]" -> output 'duration[ns]' holds 292 years only.
boolean ; texts = "N" -> texts must be those of false and true, got 'N'. Write texts = ['N', 'Y'].
boolean ; texts = ["N", "N"] -> texts must differ, without blanks around them, got ['N', 'N']. Correct...
boolean ; texts = ["N", " Y"] -> texts must differ, without blanks around them, got ['N', ' Y']. Correct...
boolean ; texts = ["True", "x"] -> texts must be those of false and then true, got ['True', 'x']. Turn them around.
boolean ; texts = ["N", "Y"] ; missing = "Y" -> levels must differ, got 'Y' twice. Remove or rename one.
boolean ; texts = ["N", "Y"] ; special = ["false"] -> special must not list a text for true ... Use other texts.
boolean ; texts = ["N", "Y"] ; output = "int8" -> output 'int8' does not hold the texts N and Y; use string or bool.
date ; edges = ["2000-01-01", "2001-01-01"] ; format = "%m/%Y" -> format must tell a day, a ... Write '%d.%m.%Y'.
datetime ; edges = ["2000-01-01", "2001-01-01"] ; format = "%d.%m.%Y %I:%M" -> format must ... '%d.%m.%Y %H:%M'.
datetime ; edges = ["2000-01-01", "2000-01-01T00:00:30"] ; format = "%d.%m.%Y %H:%M"
    -> edges and points must be multiples of what '%d.%m.%Y %H:%M' tells, got 2000-01-01T00:00:30. Move it.
time ; edges = ["0:00", "24:00"] ; format = "%H:%M" ; step = 30 -> the step must be one that ... Use a larger one.
time ; edges = ["0:00", "24:00"] ; special = ["24:00"] -> special must not list the end of ... Use another text.
time ; edges = [0, 24] -> edges of a time must be texts such as '13:30:00', got 0.
duration ; edges = ["P1M", "P2M"] -> edges of a duration must be texts such as '1:30:00', got 'P1M'.
yearmonth ; edges = ["2020-13", "2021-01"] -> edges of a yearmonth must be texts such as '1990-01', got...
year ; edges = [2020.5, 2021] -> edges of a year must be whole and below 2**63, got 2020.5. Use real.
date ; edges = ["2000-01-01", "2001-01-01"] ; format = "%d.%m.%Y" ; special = ["1999-12-31", "31.12.1999"]
    -> special values must differ, got '1999-12-31' twice. Remove one.
integer ; low = 0 ; high = 9 ; bins = 2 ; spacing = "square" -> spacing must be one of equal, log, 1-2-5, got 'square'.
year ; low = 1900 ; high = 2000 ; bins = 2 ; spacing = "log" -> spacing = 'log' is for ... nothing. Use 'equal'.
integer ; edges = [0, 9] ; spacing = "log" -> give either edges or low, high and bins, not both. Remove spacing.
integer ; low = 0 ; high = 900 ; bins = 10 ; step = 100 -> 10 bins do not fit between 0 and 900. Use fewer.
integer ; low = 0 ; high = 9 ; bins = 2 ; spacing = "log" ; domain = "private"
    -> domain = "private" is found by a release, so it takes no spacing. Remove one.
boolean ; output = 8 -> ...output must be a column type such as...
boolean ; output = "date32" -> ...output 'date32' does not hold a boolean; use one of bool, int16...
categorical ; values = ["a"] ; output = "int8" -> ...output 'int8' holds whole numbers only, not texts...
categorical ; values = [1] ; other = true ; output = "int8" -> ...holds whole numbers only...
integer ; edges = [0, 129] ; output = "int8" -> ...output 'int8' holds -128 to 127 only...
integer ; edges = [-1, 9] ; output = "uint8" -> ...output 'uint8' holds 0 to 255 only...
integer ; edges = [0, 16777218] ; output = "float32" -> ...holds whole numbers exactly up to 16777216...
real ; edges = [0, 0.125] ; output = "decimal(9, 2)" -> ...needs edges of at most 2 digits after...
real ; edges = [0, 1000.5] ; output = "decimal(4, 1)" -> ...holds 4 digits and no more...
integer ; edges = [0, 10] ; output = "decimal(38, 30)" -> ...holds edges of up to 18 digits only...
real ; edges = [0, 1e39] ; output = "float32" -> ...output 'float32' holds numbers up to 3.403e+38 only...
real ; edges = [1.00000001, 1.00000002] ; output = "float32" -> ...has no number between 1.00000001 and...
date ; edges = ["1600-01-01", "2000-01-01"] ; output = "timestamp[ns]" -> ...years 1678 to 2262 only...
datetime ; edges = ["2000-01-01T00:00:00.5", "2001-01-01"] ; output = "timestamp[s]" -> ...whole s.
datetime ; edges = ["2000-01-01", "2001-01-01"] ; output = "timestamp[s, tz=Mars/X]" -> ...no time zone...
boolean ; weight = 0 -> weight must be a number from 0.01 to 100, got 0...
boolean ; weight = true -> weight must be a number from 0.01 to 100, got True...
boolean ; title = 3 -> title must be a text of 1 to 200 printable characters in one line, got 3.
boolean ; title = '' -> title must be a text of 1 to 200 printable characters in one line, got ''.
boolean ; unit = "a\u0000" -> unit must be a text of 1 to 60 printable characters in one line, got ...
boolean ; labels = 3 -> labels must be a table of levels and texts, got 3. Write F = 'female'.
boolean ; labels = { maybe = 'x' } -> labels must name levels, got 'maybe'. Write values as ... '[0, 18)'; or remove it.
boolean ; labels = { true = 7 } -> labels of 'true' must be a text of 1 to 200 printable ... in one line, got 7.
"""
DOCUMENTS = r"""
attributes = 3 -> the schema lists no attributes. Add [attributes.NAME] for each column to release.
[atributes.a] -> schema: unknown key 'atributes'. Known keys are attributes, pairs, rules, table.
table = 3 -> [table] must be a table of settings. Write [table] and name = '...' below it.
[table] ; unit = 'x' -> [table]: unknown key 'unit'. Known keys are ask_person, columns, count, ... thousands, title.
[table] ; name = 7 -> [table] name must be a text that is not empty, got 7.
[attributes.''] ; type = 'boolean' -> an attribute's name must not be empty. Give ... name of its column.
[attributes] ; age = 'integer' -> attribute 'age': must be a table, got 'integer'. Write ... its keys below it.
[attributes.a] ; type = 'categorical' ; values = ['b=c'] ; [attributes.'a=b'] ; type = 'categorical' ; values = ['c']
    -> dummy columns must differ in name, got 'a=b=c' twice. Rename an attribute or value.
[attributes.small] ; type = 'boolean' ; [attributes.large] ; type = 'integer' ; low = 0 ; high = 40000 ; bins = 40000
    -> the schema must have at most 40000 levels in all, got 40002; the largest ... values and other = true.
[attributes] ; x = {type='real', low = 0, high = 1, bins = 10001} ; y = {type='real', low = 0, high = 1, bins = 10000}
    -> two attributes must have at most 100000000 pairs of levels, got 10000 and 10001 levels. ... and other = true.
[attributes -> the schema is not valid TOML: ....
a =  -> the schema is not valid TOML: ....
[attributes.a] ; [attributes.a] -> the schema is not valid TOML: ....
"""
# Beside two truth values, a and b.
PAIRS = r"""
pairs = 3 -> pairs must be tables, got 3. Write [[pairs]] with attributes and weight.
[[pairs]] ; weight = 2 -> pair 1: a pair has the keys attributes and weight, got ...
[[pairs]] ; weight = 2 ; attributes = ["a", "a"] -> pair 1: attributes must be two different names, got ...
[[pairs]] ; weight = 2 ; attributes = ["a", "c"] -> pair 1: the schema has no attribute 'c'. It has: a, b.
pairs = [{weight = 2, attributes = ["a", "b"]}, {weight = 2, attributes = ["a", "b"]}]
    -> pair 2: 'a' and 'b' have a weight already. Remove one.
rules = [{attribute="a", determined_by="b", map={false=false, true=true}}] ; pairs = [{weight=2, attributes=["a", "b"]}]
    -> pair 1: a rule determines 'a', which is not measured. Remove the pair.
"""
TABLES = r"""
ask_person = "id" -> [table] ask_person must list columns that may say whose rows are. Remove it where that is decided.
decimal = ';' -> [table] decimal must be '.' or ',', got ';'.
thousands = '.' -> [table] thousands must be . , ' _ or a space, and not the decimal sign, got '.'.
encoding = "klingon" -> [table] encoding must be one like 'utf-8', 'windows-1252' or 'utf-16', got 'klingon'.
encoding = "unicode_escape" -> [table] encoding must be one like 'utf-8', 'windows-1252' or ... got 'unicode_escape'.
encoding = 7 -> [table] encoding must be one like 'utf-8', 'windows-1252' or 'utf-16', got 7.
encoding = "a\u0000" -> [table] encoding must be one like 'utf-8', 'windows-1252' or 'utf-16', got 'a\x00'.
delimiter = '' -> [table] delimiter must be one ASCII character, no letter, digit or end of line, got ''.
delimiter = 'x' -> [table] delimiter must be one ASCII character, no letter, digit or end of line, got 'x'.
delimiter = 7 -> [table] delimiter must be one ASCII character, no letter, digit or end of line, got 7.
quote = 'xy' -> [table] quote must be one ASCII character, or '' where nothing is quoted, no ... of line, got 'xy'.
delimiter = '|' ; quote = '|' -> [table] delimiter and quote must differ, got '|' for both.
header = 1 -> [table] header must be true or false, got 1.
columns = ['a'] -> [table] columns name what has no header. Add header = false, or remove columns.
header = false -> [table] header = false needs columns = [...]: a name for each column of the file, in order.
header = false ; columns = ['a', ''] -> [table] columns must not be empty texts. Name every ... the file, in order.
header = false ; columns = ['a', 'a'] -> [table] columns must differ, got 'a' twice. Remove one.
columns = 'a' -> [table] columns must be a list of texts, got 'a'.
nulls = [1] -> [table] nulls must be a list of texts, got [1].
nulls = [''] -> [table] nulls must not list '', which is null anyway. Remove it.
header = false ; columns = ['b'] -> attribute 'a' must be one of the columns that [table] lists. Add or rename it.
nulls = ['y'] -> attribute 'a': values must not list 'y', which [table] nulls call null. Remove one of them.
nulls = ['-9'] ; [attributes.b] ; type = 'integer' ; edges = [0, 1] ; special = [-9]
    -> attribute 'b': values must not list '-9', which [table] nulls call null. Remove one of them.
rows_per_person = 8 -> [table] rows_per_person goes with person. Add person = 'COLUMN', or remove rows_per_person.
count = "people" -> [table] count goes with person. Add person = 'COLUMN', or remove count.
null_ids = "drop" -> [table] null_ids goes with person. Add person = 'COLUMN', or remove null_ids.
person = "" ; count = "people" -> [table] person must be the name of the column of ids, got ''.
person = 3 ; count = "people" -> [table] person must be the name of the column of ids, got 3.
person = "id" -> [table] count must be 'people' (...) or 'rows' (...), got None. docs/people.md has examples.
person = "id" ; count = "visits" -> [table] count must be 'people' (...) or 'rows' (...), got 'visits'...
person = "id" ; count = "rows" -> [table] rows_per_person must be a whole number from 1 to 1,000, got None...
person = "id" ; count = "rows" ; rows_per_person = 0 -> ...from 1 to 1,000, got 0. Noise grows with it.
person = "id" ; count = "rows" ; rows_per_person = 1001 -> ...from 1 to 1,000, got 1001. Noise grows with it.
person = "id" ; count = "rows" ; rows_per_person = true -> ...from 1 to 1,000, got True. Noise grows with it.
person = "id" ; count = "people" ; rows_per_person = 8 -> ...rows_per_person goes with count = 'rows', got 8. Remove it.
person = "id" ; count = "people" ; null_ids = "fail" -> ...null_ids must be 'person' (...) or 'drop' (...), got 'fail'.
person = "a" ; count = "people" -> ...never released, and [attributes] lists it. Remove the attribute.
"""


def assert_refused(text: str, message: str, name: str = "") -> None:
    with pytest.raises(SchemaError) as refused:
        one(text) if name else Schema.from_toml(text.replace(" ; ", "\n"))
    pattern = ".*".join(map(re.escape, (name + message).split("...")))
    assert re.fullmatch(pattern, str(refused.value)), str(refused.value)


@pytest.mark.parametrize(("entry", "message"), cases(ENTRIES))
def test_an_entry_is_refused(entry: str, message: str) -> None:
    assert_refused(entry, message, "attribute 'age': ")


TRUTHS = 'attributes = {a = {type = "boolean"}, b = {type = "boolean"}}\n'
WHOLE = cases(DOCUMENTS) + [(TRUTHS + entry, message) for entry, message in cases(PAIRS)]


@pytest.mark.parametrize(("entry", "message"), WHOLE)
def test_a_schema_is_refused(entry: str, message: str) -> None:
    assert_refused(entry, message)


@pytest.mark.parametrize(("entry", "message"), cases(TABLES))
def test_settings_of_a_table_are_refused(entry: str, message: str) -> None:
    attribute = "[attributes.a]\ntype = 'categorical'\nvalues = ['x', 'y']"
    assert_refused(f"[table]\n{entry}\n{attribute}", message)


def test_long_schemas_texts_and_numbers_are_refused() -> None:
    wide = "\n".join(f"[attributes.a{i}]\ntype = 'categorical'\nvalues = ['x']" for i in range(10_001))
    asks = "Leave out those that nobody asks for, or release groups of them by themselves, each at its own cost."
    assert_refused(wide, f"the schema must have at most 10000 attributes, got 10001. {asks}")
    said = f"description must be a text of 1 to 4,000 printable characters, got '{'x' * 59}."
    assert_refused(f"boolean\ndescription = '{'x' * 4001}'", said, "attribute 'age': ")
    huge = f"1{'0' * 309}"
    assert_refused(f"real\nedges = [0, {huge}]", f"edges must be finite numbers, got {huge}.", "attribute 'age': ")
    assert_refused(f"a = 1{'0' * 5000}", "the schema is not valid TOML: ....")
