"""Lists of codes that everybody knows: states, countries, months, days of the week, sexes, yes and no.

A column whose values are such codes has a public domain: the list, whatever part of it the rows hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import product

_STATES = """
AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC
SD TN TX UT VT VA WA WV WI WY DC AS GU MP PR VI
"""
_STATE_NAMES = """
Alabama,Alaska,Arizona,Arkansas,California,Colorado,Connecticut,Delaware,Florida,Georgia,Hawaii,Idaho,Illinois,Indiana,
Iowa,Kansas,Kentucky,Louisiana,Maine,Maryland,Massachusetts,Michigan,Minnesota,Mississippi,Missouri,Montana,Nebraska,
Nevada,New Hampshire,New Jersey,New Mexico,New York,North Carolina,North Dakota,Ohio,Oklahoma,Oregon,Pennsylvania,
Rhode Island,South Carolina,South Dakota,Tennessee,Texas,Utah,Vermont,Virginia,Washington,West Virginia,Wisconsin,
Wyoming,District of Columbia,American Samoa,Guam,Northern Mariana Islands,Puerto Rico,Virgin Islands
"""
# ISO 3166-1: the two-letter and the three-letter code of each country.
_COUNTRIES = """
AD:AND AE:ARE AF:AFG AG:ATG AI:AIA AL:ALB AM:ARM AO:AGO AQ:ATA AR:ARG AS:ASM AT:AUT AU:AUS AW:ABW AX:ALA AZ:AZE BA:BIH
BB:BRB BD:BGD BE:BEL BF:BFA BG:BGR BH:BHR BI:BDI BJ:BEN BL:BLM BM:BMU BN:BRN BO:BOL BQ:BES BR:BRA BS:BHS BT:BTN BV:BVT
BW:BWA BY:BLR BZ:BLZ CA:CAN CC:CCK CD:COD CF:CAF CG:COG CH:CHE CI:CIV CK:COK CL:CHL CM:CMR CN:CHN CO:COL CR:CRI CU:CUB
CV:CPV CW:CUW CX:CXR CY:CYP CZ:CZE DE:DEU DJ:DJI DK:DNK DM:DMA DO:DOM DZ:DZA EC:ECU EE:EST EG:EGY EH:ESH ER:ERI ES:ESP
ET:ETH FI:FIN FJ:FJI FK:FLK FM:FSM FO:FRO FR:FRA GA:GAB GB:GBR GD:GRD GE:GEO GF:GUF GG:GGY GH:GHA GI:GIB GL:GRL GM:GMB
GN:GIN GP:GLP GQ:GNQ GR:GRC GS:SGS GT:GTM GU:GUM GW:GNB GY:GUY HK:HKG HM:HMD HN:HND HR:HRV HT:HTI HU:HUN ID:IDN IE:IRL
IL:ISR IM:IMN IN:IND IO:IOT IQ:IRQ IR:IRN IS:ISL IT:ITA JE:JEY JM:JAM JO:JOR JP:JPN KE:KEN KG:KGZ KH:KHM KI:KIR KM:COM
KN:KNA KP:PRK KR:KOR KW:KWT KY:CYM KZ:KAZ LA:LAO LB:LBN LC:LCA LI:LIE LK:LKA LR:LBR LS:LSO LT:LTU LU:LUX LV:LVA LY:LBY
MA:MAR MC:MCO MD:MDA ME:MNE MF:MAF MG:MDG MH:MHL MK:MKD ML:MLI MM:MMR MN:MNG MO:MAC MP:MNP MQ:MTQ MR:MRT MS:MSR MT:MLT
MU:MUS MV:MDV MW:MWI MX:MEX MY:MYS MZ:MOZ NA:NAM NC:NCL NE:NER NF:NFK NG:NGA NI:NIC NL:NLD NO:NOR NP:NPL NR:NRU NU:NIU
NZ:NZL OM:OMN PA:PAN PE:PER PF:PYF PG:PNG PH:PHL PK:PAK PL:POL PM:SPM PN:PCN PR:PRI PS:PSE PT:PRT PW:PLW PY:PRY QA:QAT
RE:REU RO:ROU RS:SRB RU:RUS RW:RWA SA:SAU SB:SLB SC:SYC SD:SDN SE:SWE SG:SGP SH:SHN SI:SVN SJ:SJM SK:SVK SL:SLE SM:SMR
SN:SEN SO:SOM SR:SUR SS:SSD ST:STP SV:SLV SX:SXM SY:SYR SZ:SWZ TC:TCA TD:TCD TF:ATF TG:TGO TH:THA TJ:TJK TK:TKL TL:TLS
TM:TKM TN:TUN TO:TON TR:TUR TT:TTO TV:TUV TW:TWN TZ:TZA UA:UKR UG:UGA UM:UMI US:USA UY:URY UZ:UZB VA:VAT VC:VCT VE:VEN
VG:VGB VI:VIR VN:VNM VU:VUT WF:WLF WS:WSM YE:YEM YT:MYT ZA:ZAF ZM:ZMB ZW:ZWE
"""
_MONTHS = "January February March April May June July August September October November December"
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeList:
    """A public list of codes. Fewer than `least` are a coincidence unless the column's name holds a word of `named`."""

    what: str
    values: tuple[str, ...]
    named: frozenset[str]
    least: int
    ordered: bool = False


# How yes and no, or true and false, are written in pairs: the text for false, then the one for true.
_TRUTHS = [pair.split("/") for pair in ["false/true", "f/t", "no/yes", "n/y", "nein/ja", "non/oui", "off/on", "0/1"]]
_MOST_ODD = 3
_CASES = (str, str.upper, str.capitalize, str.lower)


def _list(what: str, values: Iterable[str], named: str, least: int, *, ordered: bool = False) -> list[CodeList]:
    """A list in each of the cases in which people write it."""
    values, words = tuple(values), frozenset(named.split())
    spelled = dict.fromkeys(tuple(map(case, values)) for case in _CASES)
    return [CodeList(what=what, values=each, named=words, least=least, ordered=ordered) for each in spelled]


_MONTH_NAMES, _DAY_NAMES = _MONTHS.split(), _WEEKDAYS.split()
_PAIRS = [pair.split(":") for pair in _COUNTRIES.split()]
_MONTH_WORDS, _DAY_WORDS = "month months mon monat mois mes mese", "weekday day dow wochentag jour dia giorno"
_SEX_WORDS, _COUNTRY_WORDS = "sex gender geschlecht sexe sexo sesso", "country nation land pays pais"

# The first list that holds all values of a column, and is not a coincidence, is the one that is meant.
CODE_LISTS: tuple[CodeList, ...] = (
    *_list("sexes", ("F", "M"), "", 2),
    *_list("sexes", ("Female", "Male"), "", 2),
    *_list("sexes", ("F", "M", "X"), _SEX_WORDS, 3),
    *_list("sexes", ("d", "m", "w"), _SEX_WORDS, 9),
    *_list("months", _MONTH_NAMES, _MONTH_WORDS, 3, ordered=True),
    *_list("months", [name[:3] for name in _MONTH_NAMES], _MONTH_WORDS, 3, ordered=True),
    *_list("months", map(str, range(1, 13)), _MONTH_WORDS, 13, ordered=True),
    *_list("months", (f"{month:02}" for month in range(1, 13)), _MONTH_WORDS, 12, ordered=True),
    *_list("days of the week", _DAY_NAMES, _DAY_WORDS, 2, ordered=True),
    *_list("days of the week", [name[:3] for name in _DAY_NAMES], _DAY_WORDS, 2, ordered=True),
    *_list("days of the week", map(str, range(1, 8)), "weekday dow wochentag", 8, ordered=True),
    *_list("states of the USA", sorted(_STATES.split()), "state states province st usstate", 8),
    *_list("states of the USA", sorted(name.strip() for name in _STATE_NAMES.split(",")), "state states", 3),
    *_list("countries (ISO 3166, two letters)", (pair[0] for pair in _PAIRS), _COUNTRY_WORDS, 8),
    *_list("countries (ISO 3166, three letters)", sorted(pair[1] for pair in _PAIRS), _COUNTRY_WORDS, 8),
)


def words_of(name: str) -> frozenset[str]:
    """The words of a column's name, in small letters: of PassengerId, passenger and id."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return frozenset(re.findall(r"[^\W\d_]+", parted.lower()))


def find_list(name: str, texts: Set[str]) -> CodeList | None:
    """The public list that holds these texts of a column of this name, or all but three of them and twice as many; None
    when none does, or by chance alone.
    """
    words = words_of(name)
    for most, each in product((0, _MOST_ODD), CODE_LISTS):
        held = len(texts & set(each.values))
        odd = len(texts) - held
        if odd <= min(most, held // 2) and (held >= each.least + odd or words & each.named):
            return each
    return None


def truth_texts(texts: Set[str]) -> tuple[str, str] | None:
    """How a column writes false and true, where its two texts are such a pair."""
    spelled = ((case(false), case(true)) for false, true in _TRUTHS for case in _CASES)
    return next((pair for pair in spelled if texts == set(pair)), None)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts texts as a person does, numbers in them by size."""
    parts = ((part, part.lstrip("0")) for part in re.split(r"([0-9]+)", text) if part)
    # By length and then by letters: Python refuses to read numbers of thousands of digits.
    return [(0, len(bare), bare) if part[0] in "0123456789" else (1, 0, part) for part, bare in parts]
