"""Words that statements about people are made of, English and Chinese: data, and nothing else.

``VALUES`` says of a word which attribute it is a value of, and which value: so ``window seats`` and ``靠窗的座位`` are
one value of one attribute, and ``aisle`` is another value of it. Each attribute has one value at a time, but for those
of ``MANY``.
"""

from __future__ import annotations

_WORDS: dict[str, dict[str, str]] = {
    "seat": {
        "window": "window seat|window seats|靠窗|窗边|窗口座位",
        "aisle": "aisle|aisle seat|aisle seats|靠过道|过道|靠走道|走道",
        "middle": "middle seat|middle seats|中间座位|中间的座位",
    },
    "cabin": {
        "economy": "economy class|economy|经济舱",
        "business": "business class|商务舱|公务舱",
        "first": "first class|头等舱",
    },
    "theme": {
        "dark": "dark mode|dark theme|dark themes|深色模式|暗色主题|夜间模式|深色主题",
        "light": "light mode|light theme|light themes|浅色模式|亮色主题|浅色主题",
    },
    "indentation": {"tabs": "tabs|制表符", "spaces": "spaces|空格"},
    "answer length": {
        "short": "short answers|short replies|short responses|brief answers|brief replies|brief|concise|"
        "terse|succinct|"
        "be concise|concise answers|concise replies|to the point|简短|简洁|简明|精简|言简意赅|只要结论",
        "long": "long answers|detailed answers|detailed|detailed explanations|verbose|in depth|thorough explanations|"
        "详细|详尽|详细的解释",
    },
    "tone": {"formal": "formal|formal tone|正式", "informal": "informal|casual|casual tone|随意|口语化|轻松"},
    "units": {
        "metric": "metric|metric units|metric system|kilometers|kilometres|公制|米制",
        "imperial": "imperial|imperial units|miles|英制",
    },
    "temperature": {"celsius": "celsius|摄氏度|摄氏", "fahrenheit": "fahrenheit|华氏度|华氏"},
    "time format": {"24": "24-hour|24 hour|24h|24小时制", "12": "12-hour|12 hour|12h|am/pm|12小时制"},
    "diet": {
        "vegetarian": "vegetarian|素食|素食者|吃素",
        "vegan": "vegan|纯素|严格素食",
        "pescatarian": "pescatarian|鱼素",
        "halal": "halal|清真",
        "kosher": "kosher|犹太洁食",
        "gluten-free": "gluten-free|gluten free|无麸质",
        "keto": "keto|生酮",
    },
    "editor": {
        "vim": "vim|neovim",
        "emacs": "emacs",
        "vscode": "vs code|vscode|visual studio code",
        "jetbrains": "intellij|pycharm|jetbrains|webstorm",
        "sublime": "sublime text",
    },
    "system": {
        "linux": "linux|ubuntu|debian|fedora",
        "macos": "macos|mac os|macbook|苹果电脑",
        "windows": "windows 10|windows 11|windows laptop|windows电脑",
    },
    "database": {"postgresql": "postgresql|postgres", "mysql": "mysql", "sqlite": "sqlite", "mongodb": "mongodb|mongo"},
    "shell": {"zsh": "zsh", "bash": "bash", "fish": "fish shell"},
    "programming language": {
        "python": "python",
        "rust": "rust",
        "go": "golang",
        "java": "java",
        "javascript": "javascript",
        "typescript": "typescript",
        "c++": "c++",
        "kotlin": "kotlin",
        "ruby": "ruby",
        "swift": "swift",
    },
    "contact": {
        "email": "by email|via email|by e-mail|email instead of calls|发邮件|用邮件|邮件沟通|用邮件|邮件联系",
        "phone": "by phone|phone calls|打电话|电话联系",
        "sms": "by sms|by text|text messages|短信",
        "slack": "slack|on slack",
        "wechat": "wechat|微信",
    },
    "payment": {
        "credit card": "credit card|信用卡",
        "paypal": "paypal",
        "cash": "cash|现金",
        "alipay": "alipay|支付宝",
        "gift card": "gift card",
        "bank transfer": "bank transfer|银行转账",
    },
    "marital status": {
        "single": "single|unmarried|单身|未婚",
        "married": "married|got married|结婚|已婚",
        "divorced": "divorced|离婚|离异",
    },
    "smoking": {"yes": "smoking room|吸烟房", "no": "non-smoking|nonsmoking|non smoking|无烟房|禁烟"},
    "language": {
        "english": "english|英语|英文",
        "chinese": "chinese|mandarin|中文|汉语|普通话",
        "french": "french|法语|法文",
        "german": "german|德语|德文",
        "spanish": "spanish|西班牙语",
        "japanese": "japanese|日语|日文",
        "korean": "korean|韩语",
        "italian": "italian|意大利语",
        "portuguese": "portuguese|葡萄牙语",
        "russian": "russian|俄语",
        "arabic": "arabic|阿拉伯语",
        "hindi": "hindi|印地语",
    },
    "format": {
        "bullets": "bullet points|bulleted lists|bullets|要点|列表形式",
        "prose": "plain prose|full paragraphs|段落形式",
        "tables": "tables|表格",
        "markdown": "markdown",
        "plain": "plain text|纯文本",
    },
    "time of day": {
        "morning": "in the morning|mornings|morning flights|morning meetings|上午|早上|早班",
        "evening": "in the evening|evenings|evening flights|晚上|傍晚|晚班",
        "afternoon": "in the afternoon|afternoons|afternoon meetings|下午",
    },
}

VALUES: dict[str, tuple[str, str]] = {
    word: (attribute, value)
    for attribute, values in _WORDS.items()
    for value, words in values.items()
    for word in words.split("|")
}
"""Word (case-folded) -> (attribute, value)."""

_NAMED = {
    "name": "name|full name|first name|名字|姓名|称呼",
    "residence": "home|home town|hometown|city|home city|address|home address|residence|地址|住址|家庭地址|城市|家",
    "shipping address": "shipping address|delivery address|收货地址",
    "employer": "employer|company|workplace|公司|雇主|单位",
    "occupation": "job|job title|occupation|profession|role|position|title|职业|工作|职位|岗位",
    "phone": "phone|phone number|mobile|mobile number|cell|cell number|telephone|电话|手机|手机号|电话号码|手机号码",
    "email": "email|e-mail|email address|e-mail address|mail|邮箱|电子邮箱|邮箱地址|邮件地址",
    "time zone": "time zone|timezone|时区",
    "birthday": "birthday|birth date|date of birth|year of birth|birth year|生日|出生日期",
    "manager": "manager|boss|经理|上司|老板",
    "language": "preferred language|reply language|语言|首选语言",
    "currency": "currency|preferred currency|货币|币种",
    "diet": "diet|饮食|饮食习惯",
    "editor": "editor|ide|编辑器",
    "deadline": "deadline|due date|截止日期|期限",
    "budget": "budget|预算",
    "seat": "seat|seat preference|座位|座位偏好",
}

ATTRIBUTES: dict[str, str] = {name: attribute for attribute, names in _NAMED.items() for name in names.split("|")}
"""What an attribute is called -> the attribute."""

MANY = frozenset(
    ("allergy", "likes", "dislikes", "speaks", "owns", "uses", "hobby", "identity", "pet", "child", "friend", "habit")
)
"""Attributes of which several values hold at once: another value is no contradiction."""

SYNONYMS: dict[str, str] = {
    word: group.split("|")[0]
    for group in (
        "prefer|prefers|preferred|prefering|preferring|favor|favors|favour|favours|like|likes|love|loves|enjoy|enjoys|"
        "fond|want|wants|wish|wishes|rather",
        "reply|replies|answer|answers|response|responses|respond|responds",
        "short|brief|concise|succinct|terse",
        "big|large|huge",
        "live|lives|living|reside|resides|residing|based",
        "work|works|working|employed|job",
        "have|has|having|own|owns|owning",
        "use|uses|using|used",
        "buy|buys|purchase|purchases",
        "quick|fast|rapid",
        "loud|noisy",
        "2|two",
        "3|three",
        "4|four",
        "5|five",
        "hate|hates|dislike|dislikes|detest",
        "kid|kids|child|children",
        "email|e-mail|mail|emails",
        "meeting|meetings|call|calls",
        "automobile|car|cars|vehicle",
        "photo|photos|picture|pictures|image|images",
        "movie|movies|film|films",
        "apartment|flat|apartments",
        "holiday|holidays|vacation|vacations",
        "colour|color",
        "test|tests|testing",
        "avoid|avoids",
        "always|constantly",
        "dog|dogs",
        "cat|cats",
        "teacher|instructor",
        "doctor|physician",
        "喜欢|偏好|偏爱|更喜欢|喜爱|爱好|倾向",
        "回答|回复|答复",
        "简短|简洁|简明|精简",
        "居住|住在|住",
        "工作|上班|任职|就职",
        "使用|用",
        "汽车|车子|轿车",
    )
    for word in group.split("|")
}
"""Word -> the word that stands for all that mean the same."""

_STOP = """
    e a about also always am an and are as at be been by can could currently customer d did do does down each
    every for from generally happen happens he her here him his i if in into is it its just kind ll m me mine my
    now of on or out over per please re really s shall she should so sort than that the their them then there they this
    to typically under up user users usually ve very was were when while will with would
"""
STOP = frozenset(_STOP.split())
"""English words that carry no meaning of their own."""

KINDS = ("preference", "fact", "correction", "learning", "procedure", "convention")
"""Kinds of memories: one saying is looked for under each."""
