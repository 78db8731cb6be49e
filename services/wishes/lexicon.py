"""Wishes about how an agent conducts itself, English and Chinese: data, and nothing else.

A wish names an *aspect* of conduct and a *value* of it. ``POLES`` are the values of aspects that have two which exclude
each other: a denial of one is a wish for the other. Of every other aspect a denial is a wish of its own ("no emojis").
``MENTIONS`` recognise each value in text as ``wishes`` prepares it: folded, one space between words, straight quotes.
``STATEMENTS`` are the words that a rule is injected with: ours, never a person's, so that no rule smuggles in others.
"""

from __future__ import annotations

import regex

from services.lazy_patterns import lazily

POLES: dict[str, tuple[str, str]] = {
    "process": ("conclusion", "steps"),
    "length": ("short", "long"),
    "tone": ("formal", "casual"),
    "confirmation": ("ask", "act"),
    "code": ("only", "explained"),
}

_WAY = (
    r"(?:reasoning|rationale|derivations?|(?:your|the|all|any) workings?(?: out)?|thinking|thought process|"
    r"chain of thought|"
    r"(?:explan|justific)ations?|(?:(?:every|each|all(?: the)?|the|your|intermediate|individual) )?steps?|"
    r"step[- ]by[- ]step(?: stuff| part)?|(?:whole |your |the )?process|background|"
    r"how (?:you|it was|it is|the result was) (?:have )?(?:got|get|came|arrived?(?: at)?|reached?|found|worked|did|"
    r"derived?|made)|"
    r"why before)"
)
_END = (
    r"(?:outcomes?|conclusions?|bottom line|(?:final |end |short |direct )?(?:results?|answers?)|verdict|takeaways?|"
    r"upshot|finding)s?"
)
_ENDS = (
    r"(?=$|[,.;:!?…]| ?-|[ /](?:it|there|that|here|this|and|or|but|please|just|only|parts?|stuff|when|behind|you|"
    r"that|if|from now|all|any ?more|"
    r"every|each|will|is|are|too|as well|before|with|next time|either|(?:in|to|for|from|with|behind|of) (?:your|the|"
    r"each|every|my) "
    r"(?:answers?|repl(?:y|ies)|questions?|responses?))\b)"
)
"""What may follow a word for the way to an answer, which else is part of another thing's name."""
_OF_ANSWERS = (
    r"(?! (?:to|of|for|in|from|on|with|about|at|is|was) "
    r"(?!(?:your|each|every|the|my|all)? ?(?:answer|question|repl|decision)))"
)
_LONG_WAY = (
    rf"(?:{_WAY}|analys[ie]s|preliminaries|build[- ]?up|lectures?|commentary|working|journey|road(?: to it)?|"
    r"route|tour|essay|story|how (?:it|that|this) (?:is|was) (?:\w+)|(?:walking|taking|leading) me through)"
)
"""The way in more words, where an end stands beside it."""
_FOUND = (
    rf"(?:{_END}|(?:end |final )?(?:figures?|numbers?|destination)|summar(?:y|ies)(?: at the end)?|what you (?:found|"
)
_FOUND += r"concluded))"
_NOT_THE = (
    r"(?: without|,? (?:and |but )?not| rather than| instead of| over) (?!only |just )"
    r"(?:(?:all|any|of|the|your|a|an|long|whole|detailed) ){0,3}"
)
_WISH = (
    r"\b(?:show|see|give|tell|explain|write|spell out|list|include|follow|want|need|keep|like|share|add|"
    r"take me through|walk me through|display|provide|prefer|present|understand)\b"
    r"(?:(?!\b(?:without|not|instead|rather|over)\b)[^,.;:?!]){0,32}?\b"
)
_ZH_WAY = r"(?:推理|推导|思路|思考|步骤|过程|来龙去脉|怎么(?:得|算|想|推|做)(?:出来|到)?的?|中间(?:步骤|过程)|分析过程)"
_ZH_END = r"(?:最终|最后)?(?:结论|结果|答案)"
_SOUND = r"\b(?:be|keep (?:it|things|your \w+|a)|stay|sound|write|talk|speak) (?:(?:more|a bit|a little|very|less) )?"
_LANGUAGES = {
    "english": "english|英语|英文",
    "chinese": "chinese|mandarin|普通话|汉语|中文",
    "french": "french|法语|法文",
    "german": "german|德语|德文",
    "spanish": "spanish|西班牙语",
    "japanese": "japanese|日语|日文",
    "korean": "korean|韩语|韩文",
}

_PATTERNS: dict[tuple[str, str], tuple[str, ...]] = {
    ("process", "steps"): (
        rf"{_WISH}{_WAY}\b{_ENDS}",
        r"\b(?:walk|take|talk) me through (?:it|everything|your|the (?:reasoning|process|steps|thinking)|how you)\b",
        r"\bexplain(?:ing)? (?:everything|yourself|your|it|how you|why you|each|the reasoning)\b|"
        r"\bexplain(?: more)?(?=$| this time| please| today| again)",
        r"\b(?:go|do it|answer|work|proceed) step by step\b|^step by step\b|\btell me why(?: before| every| you|$)|"
        r"\bshow (?:your|the) work(?:ing)?\b",
        rf"(?:告诉我|讲|说|写|列|展示|给|看|要|解释|带上?|附上?|保留|有)[^,;:不别无]{{0,6}}{_ZH_WAY}(?!就没)",
        rf"(?:每一?步|{_ZH_WAY})(?:(?![不别无]).){{0,4}}(?:讲|写|列|说|展示)(?:一下|出来|清楚|给我)?",
        r"一步一?步(?:地|来|讲|说|写)?|逐步(?:讲|说|解释|来)|(?:讲|说)说?你?(?:是)?怎么(?:想|做|得|算)",
        r"解释(?:一下)?(?:你的)?(?:原因|理由|为什么)",
    ),
    ("process", "conclusion"): (
        rf"\b{_FOUND}(?: (?:is|are) (?:all|what) i (?:want|need)| matters?(?: to me)?)?{_NOT_THE}{_LONG_WAY}\b",
        rf"\b(?:spare me|skip|omit|drop|leave out|cut|no need for|without|forget|never mind|ditch|save(?: me)?) "
        rf"(?:all )?(?:the |your |any )?{_LONG_WAY}(?=,| and (?:just |only )?(?:give|tell|show|say))|"
        rf"\bleave (?:the |your |any |all )*{_LONG_WAY} (?:out|aside)\b",
        r"\b(?:skip|forget|never mind) the how\b|\b(?:just|only)\b[^,.;]{0,16}\bwhat it (?:comes|boils) down to\b",
        r"(?:不用|不要|别|少)(?:再|做)?铺垫",
        rf"\b(?:just|only|simply|straight to|nothing but)\b(?: (?:please|want|wants|need|give|gives|tell|tells|show|"
        rf"shows|state|see|to|me|us|you|with|say|i)){{0,5}} (?:the |a |your |its )?{_END}\b{_OF_ANSWERS}",
        rf"\b{_END},? (?:only|alone|first|is enough|will do|suffices?|is all|are enough|(?:and )?nothing (?:else|more)|"
        rf"straight away|right away|without (?:the )?{_WAY})",
        r"\b(?:conclusions?|bottom line|results?|verdict) please$",
        rf"\bgive (?:me )?(?:only )?the (?:verdict|bottom line|upshot|takeaway)\b{_OF_ANSWERS}",
        r"\bcut to the chase\b|\b(?:get|straight|right|come) to the point\b|\btl;?dr\b|\bjust tell me what you found\b",
        rf"\b(?:spare me|skip|omit|drop|leave out|cut|hold|no need for|without|no more|forget|less|fewer|enough|"
        rf"never mind|lose|ditch|save me) (?:all |of )*(?:the |your |any |that )?{_WAY}\b{_ENDS}",
        rf"\b(?:not|no|n't (?:care|need|want|be interested in)(?: about)?|uninterested in) (?:the |your |"
        rf"any )?{_WAY}\b{_ENDS}",
        r"\bno explanations?\b|\bnot how you\b|\b(?:stop|quit) explaining\b|\b(?:just|only) need the (?:number|"
        r"figure)\b",
        rf"\bkeep (?:the |your |all the )?{_WAY} to yourself\b|\b(?:no need|need not|needn't|n't (?:need|"
        rf"have)) to explain\b",
        rf"\bonly (?:interested in|after|care about|here for) (?:the |your )?{_END}\b{_OF_ANSWERS}|"
        rf"\bget to the point\b",
        r"\b(?:just|only)\b[^,.;]{0,24}\bwhat you (?:concluded|found(?: out)?)\b|\bskip to the (?:end|conclusion|"
        r"result|answer)",
        rf"\b{_WAY} (?:does not|doesn't|do not|don't|is not|isn't|are not) (?:interest|matter|concern|need|necessary|"
        rf"important)",
        rf"{_ZH_WAY}.{{0,2}}我?(?:不关心|不重要|不感兴趣|没兴趣|不想(?:看|听|知道)|无所谓)",
        r"\b(?:spare me|skip|leave out|no need for|save me|forget) (?:all )?(?:the )?details\b"
        r"(?! (?:of|about|on|for|in) (?!how|your|the (?:process|reasoning)))|"
        r"\b(?:give|tell|just|only|want|need)\b[^,.;]{0,12}\bgist\b",
        r"(?:直接|只|就)?(?:说|讲|挑|给)(?:我)?(?:重点|要点|核心)(?!部分)|(?:别|不要|少)(?:再)?(?:绕弯子|拐弯抹角|兜圈子|铺垫)",
        rf"(?:不用|不要|别|不需要)(?:那么)?(?:长篇|多)?(?:的)?分析|{_ZH_END}(?:给我|告诉我)|"
        r"不(?:需要|想|用|必)(?:知道|管)(?:是)?怎么(?:来|得|算|想|做)",
        rf"(?:直接|只|光|就|仅)(?:要|说|给|告诉|讲|看|需要|想看|想要|关心)?(?:我)?(?:们)?(?:你的)?[^没不]{{0,3}}{_ZH_END}(?!部分|出来|里)",
        rf"(?:给我?|说|讲|看|要)(?:我)?(?:个)?{_ZH_END}(?:就行|就好|即可|就可以|就够)?$",
        rf"{_ZH_END}(?:先行|就行|就好|即可|就够了?|就可以)",
        rf"(?:别|不要|不用|不必|无需|不需要|省略|跳过|省掉|略过|少|不想)(?:跟我|给我|再|说|讲|写|看|听|列|解释|展示|那么多|"
        rf"这些|什么|你|是|的){{0,5}}{_ZH_WAY}",
        rf"{_ZH_WAY}.{{0,3}}?(?:省略|略过|就?不用|不必|免了|略去|就算了|跳过)",
        r"(?:不用|不要|别|无需|不必|不需要)(?:再|给我|跟我)?(?:多)?(?:解释|讲解)|少废话|开门见山|直奔主题",
    ),
    ("length", "short"): (
        r"\b(?:short|brief|concise|terse|succinct|shorter|compact) (?:answers?|repl\w+|responses?|explanations?)\b",
        r"\b(?:keep|make) (?:it|them|your (?:answers?|replies|responses)|answers|replies) (?:\w+ )?(?:short|brief|"
        r"concise|to the point)",
        r"\bbe (?:more )?(?:brief|concise|terse|succinct)\b|\bless (?:text|words|verbose)\b|\bfewer words\b|"
        r"\bin a nutshell\b",
        r"\b(?:answers?|repl\w+|responses?|messages) (?:is|are) (?:\w+ )?(?:too|so) (?:long|wordy|verbose)\b|"
        r"\btoo (?:wordy|verbose|long-winded)\b",
        r"\b(?:one|two|three|a few|a couple of|\d) (?:sentences?|lines?|words)(?: or so)? (?:at most|max|maximum|"
        r"only|is enough|are enough|will do)\b",
        r"简短|简洁|简明|精简|言简意赅|太啰嗦|^太长了|啰里啰嗦|短一点|短些|长话短说|"
        r"(?:回答|回复|写|说)(?:得|的)?.{0,2}太长|(?:别|不要|少)(?:再)?(?:写|说)?(?:长篇大论|(?:那么|这么)(?:长|多))",
        r"\b(?:answer|reply|respond|write|explain|summari[sz]e|say it)\b[^,.;]{0,12}\bin (?:one|a|a single|two|three|"
        r"a few|\d) (?:short )?(?:sentences?|words?|lines?)\b",
        r"[一两二三几\d]句话(?:以内|之内|说完|说清|概括|总结|就行|就好|即可)",
        r"\b(?:short|brief) version (?:please|only|will do)\b|\b(?:give|just|only|want)\b[^,.;]{0,12}\bshort version\b",

    ),
    ("length", "long"): (
        r"\b(?:long|detailed|thorough|in-depth|comprehensive|extensive|elaborate|longer|full)(?:, \w+)? "
        r"(?:answers?|repl\w+|responses?|essays?|explanations?)\b",
        r"\b(?:more|in) detail\b|\belaborate more\b|\bgo into (?:more )?detail\b|\b(?:be|answer|reply|"
        r"respond) (?:more )?(?:thorough|detailed|thoroughly)",
        r"\b(?:answers?|repl\w+|responses?) (?:is|are) (?:\w+ )?too (?:short|brief|terse)\b",
        r"(?:回答|回复|说|讲|解释|写)(?:得|的)?(?:再|更)?(?:详细|详尽|具体)|(?:更|再)详细|详细地?(?:说|讲|解释|回答|描述|阐述)|太简略|太简短|展开(?:讲|说)",
    ),
    ("tone", "formal"): (
        rf"\b(?:formal|professional|business-like)\b(?= (?:tone|style|language|manner|with me)\b)|{_SOUND}(?:formal|"
        rf"professional)\b",
        r"(?:语气|措辞|说话|表达|回复).{0,3}(?:正式|专业)|正式(?:一点|些)",
    ),
    ("tone", "casual"): (
        rf"\b(?:casual|informal|relaxed|friendly|chatty)(?= (?:tone|style|language|with me)\b)|{_SOUND}(?:casual|"
        rf"informal|relaxed)\b",
        r"(?:语气|说话|表达|回复).{0,3}(?:随意|轻松|随便)|口语化",
    ),
    ("confirmation", "ask"): (
        r"\b(?:ask|check with|confirm with|consult|tell) me (?:first|before|every time)\b|\bmy (?:ok|okay|approval|"
        r"permission|consent) before\b|\bcheck with me\b",
        r"\bconfirm (?:it |everything )?with me\b|\bask (?:me )?(?:for )?(?:my )?(?:permission|approval|"
        r"confirmation)\b|\basking (?:for )?permission\b",
        r"(?:\b(?:do not|don't|never|cannot|can't)\b[^,.;:?!]{0,30}?)?\b(?:without|before|needs?|"
        r"until) (?:my (?:approval|permission|ok|confirmation|consent)|asking me|checking with me)\b",
        r"\bask(?:ing)? me (?:whether|if) (?:to|you should|i want you)\b",
        r"(?:先|都|要|必须)(?:来|给)?(?:问我|我确认|跟我确认|和我确认|向我确认|经过我|征得我|得到我)|之前.{0,4}(?:问我|确认)|(?:不经|未经|没有)我.{0,2}(?:同意|允许|批准|"
        r"确认)",
        r"(?:问我|跟我确认|和我确认).{0,4}要不要",
    ),
    ("confirmation", "act"): (
        r"\bjust (?:do|go ahead|get on with|proceed)\b(?: with)?(?: it)?(?=$|[,.;]| and)|\bno need to (?:ask|confirm|"
        r"check)\b",
        r"\b(?:without|stop|quit) (?:asking|confirming|checking)(?: with me| me)?(?=$|[,.;]| all| every| first|"
        r" for (?:permission|approval|confirmation))",
        r"(?:直接|自己)(?:做|执行|动手|处理|改|决定)|(?:不用|不必|无需|别)(?:总是|老是|再|都|每次)?(?:问我|跟我确认|确认)",
    ),
    ("code", "only"): (
        r"\b(?:just|only) (?:the )?code\b(?! (?:of|from|in|for)\b)|\bcode only\b|\bcode without (?:comment|explan)\w+",
        r"只(?:要|给|写|发)?(?:我)?代码|代码就(?:行|好|可以)|光给代码",
    ),
    ("code", "explained"): (
        r"\bexplain (?:the |your |each piece of )?code\b|\bcode with (?:comments|explanations?)\b|\bcomment (?:your|"
        r"the|all) code\b",
        r"解释(?:一下)?代码|代码.{0,3}(?:加|写)(?:上)?注释",
    ),
    ("format", "bullets"): (
        r"\bbullet(?:ed|s)?(?: points?| lists?)?\b|\b(?:as|in) a (?:bulleted |numbered )?list\b",
        r"(?:用|以|列成|改成|做成).{0,3}(?:要点|列表|清单)(?:形式)?|分点(?:列|说|回答|写)|要点(?:列|形式)",
    ),
    ("format", "tables"): (
        r"\b(?:in|into|as|use|using|with|prefer|like|stop|without)(?: a| an?y?| the| making| using)* (?:\w+ )?tables?\b"
        r"(?! (?:at|for|of|in|free|near)\b)",
        r"(?:用|以|做成|列成|改成|整理成)(?:个)?表格|(?:要|给我?)表格(?:形式)?",
    ),
    ("format", "prose"): (
        r"\b(?:in|use|using|plain|write|prefer) (?:plain |flowing |full |normal )?(?:prose|paragraphs|sentences)\b",
        r"(?:用|以)(?:段落|整段)(?:形式)?",
    ),
    ("sources", "cite"): (
        r"\b(?:cite|quote|name|give|list|include|add|provide|show|state|link|mention)(?: me)? (?:links? to |your |"
        r"the |all |any )*"
        r"(?:sources?|references?|citations?)\b(?! code)|\bwith (?:sources|references|citations)\b|\bno citations\b",
        r"(?:附上?|注明|标明|给出|列出|写明|要有|带上?)(?:信息|资料|引用)?(?:的)?(?:来源|出处|参考文献|引用)",
    ),
    ("emoji", "emoji"): (
        r"\bemoji(?:s|es)?\b|\bsmileys?\b|\bemoticons?\b",
        r"表情(?:符号|包)?|颜文字",
    ),
    ("pleasantries", "pleasantries"): (
        r"\b(?:pleasantries|small talk|politeness|flattery|niceties|fluff|apologies|apologi[sz](?:e|ing)|compliments|"
        r"preamble)\b",
        r"客套话?|客气话?|寒暄|恭维|道歉",
    ),
    ("examples", "examples"): (
        r"\b(?:give|include|add|show|use|provide|with|want|like|need|prefer)\b(?: me| us)?(?: an?| some| more|"
        r" concrete| "
        r"real| the| always)* examples?\b(?! (?:to|of|in|from|for the) )|\bno examples\b",
        r"(?:举|配|给|加|附|带)(?:个|一个|上|些|点|几个)?(?:例子|例|示例)|多举例",
    ),
} | {
    ("language", value): (
        rf"\b(?:answer|reply|respond|write|speak|talk|talking|communicate|switch|explain|"
        rf"summari[sz]e)\b[^,.;:?!]{{0,24}}"
        rf"\b(?:in|to|with)? ?(?:{names.partition('|')[0]}{'|mandarin' if value == 'chinese' else ''})\b(?! (?:class|"
        rf"lesson))",
        rf"\bin (?:{names.partition('|')[0]}) (?:please|from now on|only)\b",
        rf"(?:用|以|说|讲|改用|使用)(?:{'|'.join(n for n in names.split('|') if not n.isascii())})"
        rf"(?=$|[,，。.!！]|回|答|说|讲|写|交流|沟通|跟我|和我|吧|给我)",
    )
    for value, names in _LANGUAGES.items()
}  # fmt: skip

HAN = lazily(r"\p{Han}")


def _compiled(*, chinese: bool) -> dict[tuple[str, str], regex.Pattern[str]]:
    mine = {what: [one for one in ways if bool(HAN.search(one)) is chinese] for what, ways in _PATTERNS.items()}
    return {what: lazily("|".join(f"(?:{one})" for one in ways)) for what, ways in mine.items() if ways}


MENTIONS = {False: _compiled(chinese=False), True: _compiled(chinese=True)}
"""For text in Chinese or not: (aspect, value) -> how it is asked for."""
CUES = {
    "process": lazily(
        r"outcome|conclu|bottom|result|answer|verdict|takeaway|upshot|finding|expla|reason|step|process|deriv|think|"
        r"thought|work|justif|rational|background|\bhow\b|detail|gist|number|figure|through|chase|point|tl;?dr|found|"
        r"working|prelim|build|lectur|comment|journey|road|route|tour|essay|story|destination|summar|analys|walk|taking|"
        r"leading|comes down|boils|why|the end\b|\p{Han}"
    )
}
"""Of an aspect with costly patterns: what stands in any text that they find."""

DENIED = lazily(
    r"(?:\b(?:no|not|never|without|stop|skip|omit|drop|spare me|leave out|cut|avoid|quit|forget|lose|ditch|enough|"
    r"no need (?:for|to)|hold|cannot stand|hate|dislike|tired of|fed up with|less|fewer)\b|n't\b|"
    r"(?:别|不要|不用|不必|无需|不需要|不想|不喜欢|讨厌|省略|省掉|去掉|少|停止|禁止|勿))"
    r"(?:(?! and | but | then | just )[^,.;:?!，。；：！？]){0,24}$|(?:不|不需|无需|没)$"
)
"""What stands before a mention that is denied; nothing ends the clause between."""

ASKED = lazily(
    r"\b(?:use|using|add|like|want|with|more|prefer|include|put|keep|give|some|as|in|love)\b[^,.;:?!]{0,24}$|"
    r"(?:用|加|多|发|带|以|喜欢|列)[^,.;:?!，。；：！？]{0,6}$"
)
"""What stands before a mention of a thing that somebody wants, for ``NAMED``."""
NAMED = frozenset(("emoji", "pleasantries", "bullets"))
"""Values whose patterns find the thing itself, which may be talked about in other ways."""

ONCE = lazily(
    r"\b(?:this time|this once|just once|for once|for this (?:one|question|task|case)|on this one|for now|today|"
    r"in this case|right now|for the moment)\b|这(?:一)?次|这回|这个问题|今天|暂时|眼下"
)
"""What says that a wish is not meant to last."""

CONDITION = lazily(
    r"^(?:(?:but|and|so|please) )?(?:when(?:ever)?|if|for|during|in case of) (?P<first>[^,;:?!]{2,60}), |"
    r"[ ,](?:when(?:ever)?|if|for|during|about|in case of) (?P<last>[^,.;:?!]{2,60})$"
)
"""What a wish holds under."""
CONDITION_ZH = lazily(
    r"^(?:但|不过)?(?:如果|当|在)?(?P<zh>[^,，。]{1,12}?)(?:的时候|时候|的话|时)[,，]?|"
    r"^(?:但|不过)?(?:对于?|关于|遇到)(?P<of>[^,，。]{1,12}?)(?:的?问题|的?任务|方面)?[,，]"
)
_ANY_TIME = """
    a about again all always an and answer answering answers any anything approval are as ask asked asking asks
    at be best brevity can case cases claim claims clarity confirmation convenience detail did do does doing done each
    else ever every everything example examples explain explaining for found from future general give giving good have
    help how i i'm in instance is it it's its know like me message messages moment more my need needed next now of on
    once one permission please possible problem problems question questions reasons replies reply replying
    report reporting respond responding response responses result results sake say saying show simplicity step
    steps task tasks tell telling thanks that the them there these they thing things this time to understand us
    want we what write writing you you're your yours
"""
ANY_TIME = frozenset(_ANY_TIME.split())
"""Words that leave a condition without content: it holds at any time."""
ANY_TIME_ZH = lazily(
    r"我|你|您|回答|回复|说话|说|讲|写|问|以后|每次|平时|任何|所有|一般|问题|的|在|给|跟|和|有|做|事|需要|想|看"
)

QUESTION = lazily(r"[?？]\s*$|(?:吗|呢|么)[。.!！]?$")
REQUEST = lazily(
    r"^(?:please |hey |so |and )*(?:can|could|would|will|may) (?:you|i|we)\b|"
    r"^(?:你)?(?:可以|能不能|能否|能|可否|麻烦)|可以.{0,8}吗|(?<!觉得|认为|[这那]样)[好行成]吗[?？]?$|"
    r"^please\b|^(?:please )?(?:skip|leave|never mind|forget|save|spare|drop|cut|omit|ditch)\b[^,?]{2,40}, "
    r"(?:what|so|just|tell|give)\b|^(?:别|不用|不要|先别|跳过|省略|省掉|略过)[^,?]{1,10},[^,?]{0,6}(?:结论|结果|答案)|"
    r"[ ,]please\?$|, ?(?:ok(?:ay)?|(?:could|would|will|can) you)\?$"
)
"""A question that asks for something to be done, or a request that ends like one."""

STATEMENTS: dict[tuple[str, str, bool], tuple[str, str]] = {
    ("process", "conclusion", False): ("Give the conclusion without the process", "只给结论，不讲过程"),
    ("process", "steps", False): ("Show the steps that lead to the conclusion", "把得出结论的过程讲出来"),
    ("length", "short", False): ("Keep answers short", "回答要简短"),
    ("length", "long", False): ("Answer in detail", "回答要详细"),
    ("tone", "formal", False): ("Use a formal tone", "语气要正式"),
    ("tone", "casual", False): ("Use a casual tone", "语气随意一些"),
    ("confirmation", "ask", False): ("Ask before you act", "动手之前先确认"),
    ("confirmation", "act", False): (
        "Do not ask again about what was asked for; what is protected still needs its approval",
        "已经要求做的事不再反复确认；受保护的操作仍需批准",
    ),
    ("code", "only", False): ("Give code without commentary", "只给代码，不加说明"),
    ("code", "explained", False): ("Explain the code that you give", "给代码时加以说明"),
    ("format", "bullets", False): ("Answer in bullet points", "用要点回答"),
    ("format", "bullets", True): ("Do not use bullet points", "不要用要点列表"),
    ("format", "tables", False): ("Use tables", "用表格"),
    ("format", "tables", True): ("Do not use tables", "不要用表格"),
    ("format", "prose", False): ("Write in full paragraphs", "用段落书写"),
    ("format", "prose", True): ("Do not write in long paragraphs", "不要写成大段文字"),
    ("sources", "cite", False): ("Name the sources", "注明来源"),
    ("sources", "cite", True): ("Leave out the sources", "不必注明来源"),
    ("emoji", "emoji", False): ("Use emojis", "可以用表情符号"),
    ("emoji", "emoji", True): ("Do not use emojis", "不要用表情符号"),
    ("pleasantries", "pleasantries", False): ("Be polite and warm", "客气一些"),
    ("pleasantries", "pleasantries", True): ("Leave out pleasantries and apologies", "不说客套话"),
    ("examples", "examples", False): ("Give examples", "回答时举例说明"),
    ("examples", "examples", True): ("Leave out examples", "不要举例"),
} | {
    ("language", value, denied): (
        f"{'Do not answer' if denied else 'Answer'} in {value.capitalize()}",
        f"{'不要' if denied else ''}用{names.split('|')[-1]}回答",
    )
    for value, names in _LANGUAGES.items()
    for denied in (False, True)
}
"""(aspect, value, denied) -> the rule in English and in Chinese."""
