"""Quality: whether a text says something that will still matter, by its kind. The signal, 0..1, must reach 0.6.

Also what is no news at all: Refold's own output, published back as a message (C40).
"""

from __future__ import annotations

import regex

from projections.policy.text import NOTICES, RULES
from services.curation.proposal import Candidate, Rejected
from services.lazy_patterns import lazily

LEAST_SIGNAL = 0.6
LONGEST = 2_000
"""Characters; a longer text is a document, no memory."""

_WORD = lazily(r"[\p{L}\p{N}]+")
_HAN = lazily(r"\p{Han}")
_QUESTION = lazily(
    r"[?？]\s*$|^(?:can|could|would|will|should|do|does|did|is|are|may|shall) (?:you|i|we|it|they|the|this|that|there|"
    r"my|your)\b|^(?:what|how|why|when|where|who|which)(?:'s| is| are| was| do| does| did| can| could| would| will|"
    r" should|"
    r" about)\b|(?:吗|呢|么|怎么样|"
    r"如何)[。?？]?$|^(?:什么|怎么|为什么|哪里|哪个|谁|如何|能不能|可不可以|是否|请问)",
    regex.IGNORECASE,
)
_SMALL_TALK = lazily(
    r"^(?:ok(?:ay)?|thanks?|thank you|thx|hi|hello|hey|yes|no|yep|nope|sure|great|cool|nice|perfect|got it|"
    r"done|good(?: morning| job| night)?|"
    r"sounds good|no problem|you're welcome|bye|see you|please|lol|haha+|hmm+|awesome|sorry|of course|right|"
    r"exactly|alright|"
    r"好的?|谢谢(?:你|您)?|你好|您好|嗯+|行|可以|没问题|收到|明白了?|知道了|再见|哈哈+|是的|对的?|不用谢|"
    r"辛苦了|早上好|晚安|就这样)"
    r"(?:[\s,，!！.。~～]+(?:ok(?:ay)?|thanks?|thank you|so much|a lot|very much|all good|for (?:your|"
    r"the) help|(?:so )?(?:bye|go ahead|let's go|will do|just a moment)|got it|sure|great|then|you|好的?|"
    r"谢谢(?:你|您)?|没问题|明白了?|知道了|麻烦了|"
    r"辛苦了|就这样(?:吧)?|再见))*[\s,，!！.。~～]*$",
    regex.IGNORECASE,
)
_PASSING = lazily(
    r"\b(?:right now|at the moment|(?<!from )today|tonight|tomorrow|yesterday|this (?:morning|afternoon|evening|time|"
    r"week)|just a (?:sec|second|moment|minute)|brb|"
    r"in (?:a|five|ten|\d+) (?:minutes?|seconds?|moment)|one moment|let me (?:check|see|know|think|look|try)|"
    r"i(?:'ll| will| am going to|'m going to) (?!always|never)\w+|never mind|^i (?:just )?(?:clicked|pressed|"
    r"typed|opened|closed|ran|tried|sent|forgot|missed|pasted|uploaded)\b|"
    r"(?:is|are|was|were) (?:running|loading|compiling|processing|waiting|pending|in progress|restarting|"
    r"failing|building)|hold on|still waiting|wait a (?:moment|minute|second|bit)|step \d+ of \d+|"
    r"working on (?:it|this)|looking into|i think i(?:'m| am) (?:tired|hungry)|i(?:'m| am) (?:tired|hungry|"
    r"busy|waiting|back|here|ready|done|bored|confused|lost|stuck|late|looking for|trying|testing|checking)|"
    r"(?:test|build|job|deploy(?:ment)?|request|step|command)s? (?:passed|failed|succeeded|finished|completed|"
    r"timed out|is running))\b"
    r"|(?:正在|马上|稍等|等一下|等等|一会儿|刚才|今天|明天|昨天|今晚|现在有点|我看看|让我(?:看|查|想|试)|我先(?!生)|"
    r"运行中|加载中|(?:编译|语法|运行|网络|连接)(?:错误|失败|超时)|我(?:先)?去(?:看|查|试|拿|问|找)|看不懂|"
    r"点错|打不开|还没好|没事(?:了|"
    r"儿)?$|我(?:正)?在(?:找|看|等|试|查|想|弄)|处理中|"
    r"测试(?:通过|失败)|构建(?:成功|失败)|我(?:饿|累|困|忙)了|有点(?:累|饿|困|忙))",
    regex.IGNORECASE,
)
_DOUBT = lazily(
    r"\b(?:maybe|perhaps|not sure|i guess|might|possibly|who knows|no idea|i don't know|unclear|somehow|"
    r"or something|seems?|appears? to|looks like|somewhere|something|some (?:issue|problem|error|kind of))\b|"
    r"似乎|某些|也许|"
    r"可能|大概|不确定|说不定|不知道|好像",
    regex.IGNORECASE,
)
_POINTING = lazily(
    r"^(?:it|this|that|these|those|there|here|they)(?:'s|\s+(?:is|was|are|were|looks?|seems?|works?|did|does|"
    r"one|has|had|will|should|would))\b"
    r"|\b(?:like (?:this|that)|this one|that one|the (?:above|following|latter|former)|as above|do (?:it|this|"
    r"that))\b|"
    r"^(?:它|这样|那样|上面|下面)|^(?:这|那)(?!个?\p{Han}{1,6}的)(?:个?\p{Han}{0,2}(?:是|就|也|都|很|不|太|有|没|能|可以|应该|看|行|好)|"
    r"个?[，,。！!]|个?$)",
    regex.IGNORECASE,
)
_NARRATED = lazily(
    r"^(?:the |an? )?(?:assistant|agent|model|bot|system|tool|script|page|file|window|browser|command|request|query|"
    r"call|"
    r"response|message|process|function)s? (?:\w+ly )?(?:was|were|got|took|did|went|came|ran|(?:has |have |"
    r"had )?\w+ed)\b"
    r"|^(?:the )?(?:user|customer|client) (?:just |then |has |had )?(?:asked|said|says|greeted|thanked|replied|"
    r"answered|"
    r"typed|clicked|opened|closed|sent|pasted|uploaded|requested|responded|wrote|confirmed|agreed|is (?:asking|waiting|"
    r"typing|online|offline)|wants to know|would like to know)\b(?! (?:that|he|she|they|his|her|their)\b)"
    r"|\b(?:what|as|like|if) you (?:mean|meant|said|say|wrote|asked|like)\b"
    r"|\bcurrent (?:time|date|page|step|status|temperature|load)\b"
    r"|^(?:助手|智能体|机器人|模型|系统|工具|脚本|页面|文件)(?:已经?|刚刚?|正)?(?:搜索|调用|打开|关闭|返回|执行|读取|点击|查询|回答|回复|完成|运行|"
    r"加载|生成|访问|发送)"
    r"|^(?:用户|客户)(?:刚刚?|又|已经?)?(?:问|提问|打招呼|发送|输入|点击|打开|关闭|上传|回复|询问|道谢|确认)了",
    regex.IGNORECASE,
)
"""What somebody did in the conversation or a program in a run: it is in the log, and nothing that lasts."""
_JUNK = lazily(
    r"Traceback \(most recent|^\s*at [\w.$]+\(|\bexit(?:ed)?(?: with)? (?:code|status) \d|^\s*(?:\{|\[\{|<\w+|"
    r"def |class |import |from \w+ import|#include|SELECT |function |\$ |>>> )"
    r"|(?:Error|Exception): |^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d.*(?:INFO|DEBUG|WARN|ERROR)|\b(?:INFO|DEBUG|"
    r"WARN|ERROR)\b *[:\]]|^(?:HTTP/|GET |POST )|lorem ipsum|\b\d+ (?:files?|insertions?|tests?|errors?|"
    r"warnings?|packages?)\b.{0,3}(?:changed|passed|failed|found|added)|^warning: |^npm (?:WARN|ERR)|"
    r"\bdeprecated\b.*@\d",
    regex.MULTILINE,
)
_LESSON = lazily(
    r"\b(?:when|before|after|if|unless|because|instead|always|never|must|needs?|requires?|should|avoid|prefer|"
    r"use|run|check|ensure|make sure|fails?|only|do not|don't|works?|causes?|means?|verify|retry|set|first)\b"
    r"|先|再|后|如果|当|时|因为|必须|需要|应该|不要|避免|使用|检查|确保|会导致|否则|只有|务必|失败|才能|优先",
    regex.IGNORECASE,
)
_PERSONAL = lazily(
    r"[\w.+-]+@[\w-]+\.\w{2,}|(?<!\d)\+?\d[\d ()-]{7,}\d(?!\d)|\b(?:mr|mrs|ms|dr)\.? \p{Lu}|"
    r"\b(?:the )?(?:user|customer|client)(?:'s|s'| (?:named|called|lives|likes|prefers|wants|said|has|is))\b|"
    r"用户(?:叫|住|喜欢|说|的(?:电话|地址|姓名|邮箱))",
    regex.IGNORECASE,
)
_OWN_LINE = lazily(
    r"^(?:file changed|side effect done|side effect without an answer[^:]*|call without an answer|step completed|"
    r"step not finished|command|artifact|error|"
    r"waiting for approval|blocked by|decided): ",
)
_OWN_LISTED = lazily(r"^- (?:preference|fact|correction|learning|procedure|convention): ", regex.MULTILINE)
_OWN_STATE = lazily(
    r"^(?:goal|status|current_phase|pending_task|completed_actions|key_decisions|rejected_paths|open_questions|"
    r"action_items|blocked|waits for approval|decided): ",
    regex.MULTILINE,
)
_STATE_LINES = 2
"""Lines as the state in a context has them: one may be anybody's, several are Refold's."""
_OWN_FENCE = lazily(
    r"<(?:/?)(?:refold|memory|memories|context|untrusted|data|session_state|known|policy)[\s>_-]|"
    r"^#+ (?:session state|state|cards|recalled|turns|originals|memories|memory cards?|known facts|policy|"
    r"task state|evidence)\b"
    r"|\[(?:memory|card|refold)[: #]|\"(?:session_state|reflections|learnings|completed_actions|pending_task|"
    r"key_decisions|rejected_paths)\"\s*:",
    regex.IGNORECASE | regex.MULTILINE,
)


def not_own_output(candidate: Candidate) -> Candidate | Rejected:
    """What Refold itself wrote, a settlement or a context, is no news when it comes back."""
    return Rejected("own_output", "it is what Refold wrote itself") if is_own_output(candidate.content) else candidate


def is_own_output(text: str) -> bool:
    """Whether a text bears the marks of a settlement, an evidence line, a policy or an assembled context."""
    if RULES in text or NOTICES in text or _OWN_FENCE.search(text) or _OWN_LINE.match(text) or _OWN_LISTED.search(text):
        return True
    return len({found[0] for found in _OWN_STATE.finditer(text)}) >= _STATE_LINES


def good_enough(candidate: Candidate) -> Candidate | Rejected:
    """Weigh the signal, and let nothing below ``LEAST_SIGNAL`` in."""
    text = candidate.content
    if len(text) > LONGEST:
        return Rejected(
            "too_long", f"{len(text):,} characters are more than {LONGEST:,}: a memory is a sentence or two"
        )
    signal, why = signal_of(candidate)
    if signal < LEAST_SIGNAL and candidate.trust == "data":
        return Rejected("instruction", "it tells its reader what to do, and says nothing that lasts")
    if signal < LEAST_SIGNAL:
        return Rejected("low_signal", f"{signal:.2f} of {LEAST_SIGNAL}: {'; '.join(why) or 'it says too little'}")
    return candidate.with_note(f"signal {signal:.2f}", signal=signal)


def signal_of(candidate: Candidate) -> tuple[float, list[str]]:
    """How much it says, 0..1, and what speaks against it."""
    text, proposed, said = candidate.content, candidate.proposed, candidate.statement
    against = [(weight, why) for weight, why in objections(text, proposed.kind, known=said.slot is not None)]
    about = said.slot is not None or said.personal or said.directive or bool(proposed.entity)
    signal = 0.5 + _substance(text, about=about)
    signal += 0.25 if said.slot is not None or proposed.attribute else 0.0
    signal += 0.1 if said.personal or said.directive or proposed.entity else 0.0
    signal += 0.1 if proposed.source == "person" or proposed.kind == "correction" else 0.0
    if proposed.kind in ("learning", "procedure", "convention"):
        signal += 0.25 if _LESSON.search(text) else -0.05
    if proposed.confidence is not None and proposed.confidence < 0.4:
        against.append((0.3, f"its confidence is only {proposed.confidence:g}"))
    signal -= sum(weight for weight, _ in against)
    return min(max(signal, 0.0), 1.0), [why for _, why in against]


def _substance(text: str, *, about: bool) -> float:
    """Up to 0.15 for words enough, below 0 for too few, or too many other signs.

    ``about``: it is known whom or what it is about; else more words are needed to say so.
    """
    letters = sum(char.isalpha() for char in text)
    if letters < 4 or (letters < 0.4 * len(text.replace(" ", "")) and not about):
        return -0.15 if about else -0.3
    words = len(_WORD.findall(_HAN.sub(" ", text))) + len(_HAN.findall(text)) // 2
    enough = 2 if about else 4 if _HAN.search(text) else 5
    return 0.15 if words > enough or (words == enough and not about) else 0.0 if words == enough else -0.15


def objections(text: str, kind: str, *, known: bool) -> list[tuple[float, str]]:
    """What speaks against a text, and how much. ``known``: a rule read a value of an attribute from it."""
    found = []
    plain = text.strip()
    if _SMALL_TALK.match(plain):
        found.append((0.8, "it is small talk"))
    if _QUESTION.search(plain):
        found.append((0.7, "it is a question"))
    if _JUNK.search(plain):
        found.append((0.6, "it is output or code"))
    if _PASSING.search(plain):
        found.append((0.25 if known and kind != "fact" else 0.45, "it holds for a moment only"))
    if _NARRATED.search(plain) and kind in ("fact", "preference"):
        found.append((0.45, "it tells what was done, and that is in the log"))
    if _DOUBT.search(plain):
        found.append((0.3, "it is in doubt"))
    if _POINTING.search(plain):
        found.append((0.4, "what it points at is not in it"))
    if kind in ("learning", "procedure") and _PERSONAL.search(plain):
        found.append((0.9, "it names a person: what an agent learns travels to other users"))
    return found
