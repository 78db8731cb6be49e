"""Safety: credentials never enter; unseen characters are taken out; what reads like an order is marked as data."""

from __future__ import annotations

import regex

from projections.cards.secrecy.secrets import masked_text
from services.curation.proposal import Candidate, Rejected
from services.curation.statements import read
from services.lazy_patterns import lazily

_SPOKEN = lazily(
    r"(?i)\b(?:pass(?:word|phrase|code)?|pwd|pw|(?:one[- ]time|verification|recovery|security|backup|unlock|door|"
    r"access) "
    r"(?:pass)?(?:code|phrase)|otp|pin(?: code)?|api[ _-]?key|secret(?: key)?|access key|"
    r"auth(?:entication)? token|"
    r"(?:access|bearer|session) token|private key|cvv|security code)\b(?:[^.;\n]{0,30}?)(?:\bis\b|\bwas\b|"
    r"\bequals\b|=|:|->|"
    r"\bto\b)\s*"
    r"[\"'`]?(?!(?:required|missing|expired|stored|kept|in|not|a|an|the|never|needed|long|short|wrong|invalid|"
    r"reset|safe|changed)\b)"
    r"(?P<value>[^\s\"'`,;]{3,})"
    r"|\b(?i:password|passcode|passphrase|pwd|pw|secret)\s+(?P<bare>(?=\S*\d)(?=\S*[A-Za-z])\S{6,})"
    r"|(?:密码|口令|密钥|私钥|验证码|令牌|(?i:pin)码?)(?:现在|已经?)?(?:是|为|(?:改|换|变|设|设置|更新)(?:成|为|到)了?|[:：=]|->|"
    r"\s(?=\S*\d))\s*[\"'“]?(?P<zh>[\x21-\x7e]{3,})"
)
_COMBINATION = lazily(
    r"(?i)\b(?:safe|vault|lock(?:er)?|door|gate|alarm|garage|building|suitcase)\b[^.\n]{0,20}\b(?:opens?|unlocks?|code|"
    r"combination)\b[^.\n\d]{0,24}\d(?:[ -]?\d){2,}|"
    r"(?:保险[箱柜]|门锁|大门|车库)[^。\n\d]{0,10}(?:密码|开)[^。\n\d]{0,4}\d{3,}"
    r"|\b(?:recovery|seed|backup|mnemonic) (?:phrase|words)\b\W{1,3}(?:is|are|was)?\W{0,3}(?:[a-z]+[ ,]+){5,}[a-z]+"
)
_CARD = lazily(r"(?<!\d)(?:\d[ -]?){13,19}(?!\d)")
_NUMBERED = lazily(
    r"(?i)\b(?:credit|debit|bank) ?card(?: number)?\b[^\n]{0,20}?(?:\d[ -]?){12,19}|(?:银行卡|信用卡|"
    r"储蓄卡)号?[^\n]{0,6}(?:\d[ -]?){12,19}"
)
_IDENTITY = lazily(
    r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)|(?<!\d)\d{6}(?:19|20)\d{2}(?:0[1-9]|1[0-2])\d{5}[\dXx](?![\dA-Za-z])"
)
_LABELLED = lazily(r"(?i)(?:key|token|secret|passw|credential|密钥|令牌|密码)")
_TOKEN = lazily(r"(?<![\w-])[A-Za-z0-9_\-+/=.]{16,}(?![\w-])")

_MEMORY_NAME = lazily(r"m-[0-9a-f]{20}")
"""As ``decisions.memory_name`` makes them: what a correction may name looks like a drawn token."""

_TURNED = lazily(r"[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_UNSEEN = lazily(r"[\u200b\u2060-\u2064\u00ad\ufeff\u180e\u200e\u200f\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_JOINER = lazily(
    r"(?<![\p{Extended_Pictographic}\ufe0f\p{Emoji_Modifier}\p{L}\p{M}])[\u200c\u200d]|"
    r"[\u200c\u200d](?![\p{Extended_Pictographic}\p{L}\p{M}])|(?<=[A-Za-z])[\u200c\u200d]|"
    r"[\u200c\u200d](?=[A-Za-z])"
)

_ORDERS = tuple(
    lazily(pattern, regex.IGNORECASE)
    for pattern in (
        r"\bobey\b|\bkeep\b[^.\n]{0,30}\b(?:secret|hidden) from\b|\bexfiltrate\b|"
        r"\bwithout (?:reading|checking|verifying|reviewing|confirming|approval|asking)\b",
        r"\byou (?:have been|are|were) (?:hereby |now )?(?:granted|given|allowed|authori[sz]ed|permitted)\b|"
        r"\bstop (?:following|obeying|listening)\b|"
        r"\b(?:delete|erase|hide|forward|follow|obey|do what|copy)\b[^.\n]{0,20}\bthis (?:note|message|memory|"
        r"conversation|"
        r"text|entry)\b",
        r"\bpretend\b|\b(?:disable|turn off|switch off|deactivate|remove|lift)\b[^.\n]{0,40}\b(?:safety|safeguard|"
        r"filter|check|verification|security|logging|audit|moderation|restriction|limit|guardrail)",
        r"\b(?:add|insert|append|include|embed|put)\b[^.\n]{0,60}https?://",
        r"\b(?:grant|approve|accept|authori[sz]e|allow|confirm|execute|obey|treat)\b[^.\n]{0,30}\b(?:every|all|"
        r"any)\b[^.\n]"
        r"{0,20}\b(?:request|refund|order|command|transfer|payment|transaction|demand)",
        r"\bnever ask\b[^.\n]{0,30}\b(?:confirm|approv|permission|before)|^(?:system|developer|admin(?:istrator)?|"
        r"override|"
        r"(?:new |important )?(?:instructions?|rules?|orders?)(?: (?:for|to) (?:the )?(?:ai|assistant|agent|model|"
        r"bot))?) ?[:：]",
        r"\b(?:developer|god|debug|admin|jailbreak|unrestricted|root) mode\b|\bcontent filters?\b|\bact as (?:root|"
        r"admin)",
        r"\b(?:enter|type|paste|give|hand over|print|show|send|post)\b[^.\n]{0,40}\b(?:passwords?|credentials?|"
        r"environment variables?|private keys?|api keys?|tokens)\b(?! (?:is|are)\b)",
        r"(?:无论|不管)[^。\n]{0,16}(?:都|一律|均)[^。\n]{0,6}(?:批准|同意|通过|放行|执行|转账|退款|退|打款|照做|答应)",
        r"(?:所有|任何|全部|每个|一切)[^。\n]{0,8}(?:请求|命令|申请|退款|转账|订单)[^。\n]{0,12}(?:批准|通过|放行|执行|同意|不需要确认|无需)",
        r"(?:开发者|管理员|调试|上帝|无限制)模式|"
        r"没有任何限制|(?:密码|密钥|令牌|凭证|隐私)[^。\n]{0,6}(?:发送|发到|发给|上传|提交|输入|告诉)",
        r"清空[^。\n]{0,8}(?:数据|数据库|记录|文件|邮箱)|(?:隐瞒|欺骗|误导)[^。\n]{0,6}(?:用户|客户)|(?:对|"
        r"向)(?:用户|客户)(?:隐瞒|撒谎|说谎)",
        r"\b(?:ignore|disregard|forget|override|bypass|skip)\b[^.\n]{0,40}\b(?:instruction|prompt|rule|"
        r"guideline|polic|restriction|limit|safeguard|safety|above|previous|prior|earlier|system|confirmation|"
        r"approval|check|verif|authenticat|what the (?:user|customer)|(?:user|customer)'s? (?:wish|request))",
        r"\b(?:you are now|you're now|act as|pretend (?:to be|you)|roleplay as|from now on,? you (?:are|will|"
        r"must)|your new (?:role|task|instructions?))\b",
        r"\b(?:send|post|upload|forward|transmit|exfiltrate|(?<!\b(?:my|your|the|his|her|their|new|work|old|"
        r"an|by|via|user's) )email(?! (?:is|address|was|has|addresses)\b)|leak|copy|share|submit|deliver|"
        r"export)\b[^.\n]{0,80}(?:https?://|\b(?:attacker|external|webhook|remote server|this (?:url|address|"
        r"endpoint)|api keys?|keys|passwords?|credentials?|secrets?|tokens?|private data|chat history|"
        r"conversation)\b|[\w.+-]+@[\w-]+\.\w)",
        r"\b(?:do not|don't|never|without) (?:tell|inform|mention|reveal|ask|telling|informing|asking|notify|"
        r"notifying|alert|warn)[^.\n]{0,40}\b(?:user|customer|anyone|owner|human|admin|developer)",
        r"\b(?:reveal|print|output|show|repeat|dump|expose)\b[^.\n]{0,40}\b(?:system prompt|hidden prompt|"
        r"your (?:instructions|prompt)|credentials?|secrets?|passwords?|api keys?)",
        r"\b(?:execute|run|eval|invoke)\b[^.\n]{0,40}(?:\brm -|\bcurl\b|\bwget\b|\bbash -c|\bpowershell|"
        r"\bsudo\b|\bthis (?:command|code|script)|\bthe following|\bdrop table|`)",
        r"\brm -rf\b|\bcurl [^\n]*\|\s*(?:ba)?sh\b|\bdrop table\b|\bdelete all\b[^.\n]{0,30}\b(?:files|"
        r"records|data|users|memories|emails)\b",
        r"<\|?(?:im_start|system|/?sys|endoftext|assistant|/system)\b|\[/?INST\]|<<SYS>>|^#+ *(?:system|"
        r"instruction)|\bsystem ?(?:prompt|message|override)\s*:|\bend of (?:prompt|context|document)\b",
        r"\b(?:assistant|agent|ai|model|bot|llm)s?\b[^.\n]{0,20}\b(?:must|should|shall|has to|have to|"
        r"needs? to|is required to|will) (?:always |now |immediately |never )?(?:send|approve|transfer|ignore|"
        r"reveal|grant|execute|disable|delete|bypass|refund|click|visit|open|download|trust|comply|obey|"
        r"recommend)",
        r"\b(?:always|automatically|immediately|silently) (?:approve|transfer|grant|refund|wire|disable|"
        r"whitelist|trust|delete|recommend|promote|install|download)\b|\bgrant\b[^.\n]{0,30}\b(?:admin|root|"
        r"full) (?:access|rights|privileges)|\b(?:transfer|wire)\b[^.\n]{0,30}\b(?:account|funds|money)\b",
        r"\b(?:visit|click|open|download from|go to)\b[^.\n]{0,30}https?://",
        r"(?:忽略|无视|忘记|忘掉|绕过|跳过|不要遵守|覆盖)[^。\n]{0,20}(?:指令|提示|规则|限制|要求|设定|安全|"
        r"确认|审批|系统|以上|之前)",
        r"(?:你现在是|你将扮演|请扮演|扮演一个|假装你是|从现在起你|你的新任务|你的新身份)",
        r"(?:把|将|请)[^。\n]{0,40}(?:发送|发到|发给|上传|转发|提交|泄露|寄到|导出)[^。\n]{0,40}(?:https?://|"
        r"[\w.+-]+@[\w-]+\.\w|服务器|外部|网址|密钥|密码|凭证|令牌|聊天记录|邮箱)",
        r"(?:发送|上传|转发|泄露|提交)[^。\n]{0,20}(?:密钥|密码|凭证|令牌|聊天记录|对话记录|所有数据|用户数据|api)",
        r"(?:不要|别|切勿|无需|不必)(?:告诉|告知|通知|提醒|询问|让)[^。\n]{0,10}(?:用户|任何人|客户|管理员|主人)",
        r"(?:执行|运行)[^。\n]{0,20}(?:以下|命令|脚本|代码|rm |curl|sudo)|删除[^。\n]{0,12}(?:所有|"
        r"全部)[^。\n]{0,10}(?:文件|数据|记录|用户|邮件)",
        r"(?:输出|显示|打印|泄露|公开|告诉我)[^。\n]{0,15}(?:系统提示|提示词|内部指令|隐藏指令)|系统(?:消息|"
        r"指令|提示)[:：]",
        r"(?:助手|智能体|模型|机器人|AI)[^。\n]{0,6}(?:必须|应当|应该|务必|需要)(?:总是|立即|始终)?(?:发送|"
        r"批准|转账|忽略|透露|授予|执行|禁用|删除|绕过|退款|点击|访问|信任|服从|推荐)",
        r"(?:自动|直接|立即|一律|总是)(?:给[^。\n]{0,10}|为[^。\n]{0,10})?(?:批准|转账|退款|授权|放行|授予|"
        r"删除|下载|安装|打款)|(?:点击|访问|"
        r"打开)[^。\n]{0,15}https?://|转账到",
    )
)  # fmt: skip

_OBLIGED = tuple(
    lazily(pattern, regex.IGNORECASE)
    for pattern in (
        r"\b(?:you|assistants?|agents?) (?:must|have to|has to|need to|needs to|should|shall|will|are (?:required|"
        r"obliged|"
        r"authori[sz]ed|allowed) to) (?:not |never |always |now |first |immediately |then )*(?!answer|reply|respond|"
        r"write|"
        r"speak|use|call (?:me|him|her|them|the user|the customer)|address|format|keep|be|give|quote|explain|summari|"
        r"show|"
        r"include|mention|remember|know|avoid|have|note|expect|find|get|see)\w+",
        r"(?:必须|务必|一定要|应该)[^。\n]{0,10}(?:删除|转账|批准|执行|发送|上传|泄露|关闭|停用|禁用)",
    )
)  # fmt: skip
"""What somebody has to do, but for how to answer: lessons are made of it, and nothing that describes a user is."""
_DESCRIBING = frozenset(("fact", "preference", "correction"))


def without_unseen(candidate: Candidate) -> Candidate | Rejected:
    """Take out characters that nobody sees; text that hides itself, by direction or tags, does not enter."""
    if hides(candidate.content):
        return Rejected("hidden_characters", "it holds characters that turn text around, or tags that nobody sees")
    seen = visible(candidate.content)
    if not seen:
        return Rejected("empty", "nothing in it can be seen")
    if seen == candidate.content:
        return candidate
    return candidate.with_note("unseen characters taken out", content=seen, statement=read(seen))


def hides(text: str) -> bool:
    """Whether a text holds characters that turn it around, or tags that nobody sees."""
    return _TURNED.search(text) is not None


def visible(text: str) -> str:
    """A text without characters that nobody sees, but for those that join what is written together."""
    seen: str = _JOINER.sub("", _UNSEEN.sub("", text)).strip()
    return seen


def without_credentials(candidate: Candidate) -> Candidate | Rejected:
    """Passwords, keys, tokens, card and identity numbers never enter, whichever field they stand in."""
    proposed = candidate.proposed
    corrects = "" if _MEMORY_NAME.fullmatch(proposed.corrects) else proposed.corrects
    texts = (candidate.content, proposed.entity, proposed.attribute, corrects, *proposed.tags)
    kind = next((found for text in texts if (found := credential(text))), "")
    return Rejected("credentials", f"it holds {kind}") if kind else candidate


def credential(text: str) -> str:
    """What kind of secret a text holds; empty: none. Never the secret itself."""
    if masked_text(text) != text:
        return "a key, token or password"
    for found in _SPOKEN.finditer(text):
        value = found["value"] or found["zh"] or found["bare"] or ""
        if _NO_LETTER.search(value) or value != value.lower() or len(value) >= 12 or _LABELLED.search(found[0][:8]):
            return "a password or key that is spelled out"
    if _COMBINATION.search(text):
        return "a code or phrase that opens something"
    if _NUMBERED.search(text) or any(_is_card(_NO_DIGIT.sub("", found[0])) for found in _CARD.finditer(text)):
        return "a card number"
    if _IDENTITY.search(text):
        return "an identity number"
    if any(_drawn(found[0]) for found in _TOKEN.finditer(text)):
        return "a token that looks drawn at random"
    return ""


def _is_card(digits: str) -> bool:
    """The check digit of card numbers (Luhn)."""
    if not 13 <= len(digits) <= 19 or len(set(digits)) < 2:
        return False
    doubled = (sum(divmod(2 * int(d), 10)) if i % 2 else int(d) for i, d in enumerate(reversed(digits)))
    return sum(doubled) % 10 == 0


def _drawn(token: str) -> bool:
    """Whether a token of 20 characters or more mixes letters and digits as no word, path or name does."""
    if len(token) < 20 or _HEX.fullmatch(token) or ("/" in token.strip("/") and token.count("/") > 1) or "://" in token:
        return False
    runs = _RUNS.findall(token)
    digits = sum(char.isdigit() for char in token)
    return 3 <= digits < len(token) - 3 and len(token) / max(1, len(runs)) < 3.2 and not _UUID.fullmatch(token)


_HEX = lazily(r"[0-9a-fA-F]+")  # ``masked_text`` knows digests from keys
_NO_LETTER, _NO_DIGIT = lazily(r"[\d\W_]"), lazily(r"\D")
_RUNS = lazily(r"[A-Z]+[a-z]*|[a-z]+|\d+")
_UUID = lazily(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def mark_orders(candidate: Candidate) -> Candidate:
    """What reads like an order to whoever reads it is data, never more: contexts fence it (C39)."""
    if not is_order(candidate.content, candidate.proposed.kind):
        return candidate
    return candidate.with_note("reads like an instruction: untrusted", trust="data")


def is_order(text: str, kind: str = "") -> bool:
    """Whether a text tells its reader to act against its people: to ignore rules, hide, send away, run or grant.

    ``kind``: of the memory that it is to be; one that describes a user has no duties in it either.
    """
    orders = (*_ORDERS, *_OBLIGED) if kind in _DESCRIBING else _ORDERS
    return any(order.search(text) for order in orders)
