"""What type of value a text is: a number, a time, a day, an address. Pure.

Two values of one type, said of the same thing, contradict each other even where no word list knows the thing: the
release day is either Tuesday or Thursday. Values of no type may well hold together.
"""

from __future__ import annotations

from services.lazy_patterns import lazily

_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|march|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_ZH_DIGITS = r"\d一二三四五六七八九十百千万两"
_ZH_NUMBER = rf"[{_ZH_DIGITS}]+"
_ZH_PART_OF_DAY = r"(?:上午|下午|早上|晚上|中午|凌晨)"
_COUNTS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred"
_NTH = r"\d{1,2}(?:st|nd|rd|th)?"

_FORMS = (
    ("address", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    ("link", r"https?://\S+|(?:[a-z0-9-]+\.)+[a-z]{2,}(?:[:/]\S*)?"),
    ("date", r"\d{4}-\d\d-\d\d"),
    ("date", rf"{_NTH}(?: of)? {_MONTH}(?: \d{{4}})?|{_MONTH} {_NTH}(?:,? \d{{4}})?"),
    ("date", rf"{_ZH_NUMBER}月{_ZH_NUMBER}[日号]?"),
    ("day", rf"{_DAY}(?: (?:morning|afternoon|evening|night|noon)s?)?"),
    ("day", rf"(?:每|这|下)?(?:周|星期|礼拜)[一二三四五六日天]{_ZH_PART_OF_DAY}?"),
    ("time", r"\d{1,2}[:.]\d\d(?: ?[ap]\.?m\.?)?|\d{1,2} ?[ap]\.?m\.?|\d{1,2} o'?clock|noon|midnight"),
    ("time", rf"{_ZH_PART_OF_DAY}?{_ZH_NUMBER}点(?:半|{_ZH_NUMBER}分?)?"),
    ("code", r"\p{L}{1,4}[- ]?\d[\w-]*"),
    ("number", r"[€$£¥]? ?[+-]?\d[\d,. ]*(?: ?[%‰€$£¥]|(?:[ -]?\p{L}+){1,4})?"),
    ("number", rf"(?:{_COUNTS})(?:[ -]\p{{L}}+){{0,4}}|{_ZH_NUMBER}\p{{Han}}{{0,4}}"),
)
_LEAD = r"(?:(?:at|on|in|by|until|till|about|around|every|next|early|late) )*"
_TYPES = tuple((name, lazily(rf"^{_LEAD}(?:{form})$")) for name, form in _FORMS)

_HEADS = """
    address amount branch budget capacity capital captain ceo chair color colour contact cost currency date day deadline
    director endpoint fee frequency head height host hostname id interval lead leader length limit location maintainer
    maximum minimum name number owner port president price quota rate reviewer salary size sponsor target temperature
    threshold time timeout title url version weight winner
"""
_SINGLE = frozenset(_HEADS.split())
_ZH_HEADS = """
    地址 日期 期限 预算 上限 下限 价格 费用 端口 版本 名称 名字 号码 编号 负责人 时间 尺码 尺寸 温度 频率 经理 主管
    域名 货币
"""
_ZH_SINGLE = tuple(_ZH_HEADS.split())

_UNIT = lazily(rf"[%‰€$£¥]|(?<=[\d -])(?!\p{{Han}})\p{{L}}+|(?<=[{_ZH_DIGITS}])(?![{_ZH_DIGITS}])\p{{Han}}")
_CURRENCIES = {"€": "euro", "$": "dollar", "£": "pound", "¥": "yen", "%": "percent"}


def type_of(value: str) -> str:
    """``address``, ``link``, ``date``, ``day``, ``time``, ``code`` or ``number``; empty: of no type.

    A number's type has its unit: three hours and three stops do not contradict each other.

    >>> type_of("500 requests per minute"), type_of("thursday"), type_of("周四下午"), type_of("in the repair shop")
    ('number request', 'day', 'day', '')
    """
    plain = value.strip().casefold()
    found = next((name for name, pattern in _TYPES if pattern.match(plain)), "")
    return f"number {_unit(plain)}".strip() if found == "number" else found


def _unit(number: str) -> str:
    """What is counted: the first word after a number in its singular, or the currency."""
    found = _UNIT.search(number)
    unit = "" if found is None else str(found[0])
    return _CURRENCIES.get(unit, unit.removesuffix("s"))


def has_one_value(thing: str) -> bool:
    """Whether what a thing is called says that it has one value at a time: ``the project lead``, ``负责人``."""
    return thing.rpartition(" ")[2] in _SINGLE or thing.endswith(_ZH_SINGLE)
