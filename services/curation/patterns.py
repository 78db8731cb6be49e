"""How people say things about themselves, English and Chinese: patterns, and nothing else.

English ones are written for text as ``statements`` prepares it: folded, `i` and `my` for whoever it is about, `is` for
`am` and `are`.
"""

from __future__ import annotations

import regex

from services.lazy_patterns import lazily

CJK = lazily(r"[\p{Han}]")
LEAD = lazily(
    r"^(?:(?:please |pls )?(?:remember|note|keep in mind|be aware|know)(?: that)?[:,]? |fyi[:,]? |"
    r"(?:by the way|btw)[,:]? "
    r"|actually[,:]? |no[,:] |sorry[,:] |correction[:,]? |for the record[,:]? |just so you know[,:]? |"
    r"from now on[,:]? "
    r"|going forward[,:]? |in (?:the )?future[,:]? |(?:the )?(?:user|customer) (?:said|says|mentioned|stated|noted|"
    r"told us|confirmed|explained)(?: that)? |update[:,] |also[,:]? |well[,:]? |hi[,!.] |hello[,!.] |so[,:]? |and "
    r"|you should know(?: that)? |i should mention(?: that)? |as i said[,:]? |i(?:'d| would) like you to |wait[,:]? )+"
)
SUBJECT = (
    (lazily(r"^(?:the )?(?:user|customer|client)(?:'s|s') |^(?:his|her|their|our) "), "my "),
    (lazily(r"^(?:the )?(?:user|customer|client|he|she|they|we) "), "i "),
    (
        lazily(
            r"^(?:prefers|likes|loves|wants|lives|works|uses|speaks|hates|dislikes|has|is|owns|enjoys|avoids|"
            r"commutes|collects|plays|reads|drinks|eats|drives|studies|teaches|runs|travels|needs|follows|"
            r"writes|keeps|goes|takes|"
            r"manages|leads|cooks|pays|wears|rents|volunteers) "
        ),
        None,
    ),
)
NO_LONGER_MINE = lazily(
    r"^(?P<v>.+) (?:is|was) (?:no longer|"
    r"not) my (?P<attr>[\p{L} -]{2,40}?)(?: any ?more)?$"
)
CONTRACTED = tuple(
    (lazily(pattern), long)
    for pattern, long in (
        (r"\b(he|she|they|we)'d (?=rather|like|prefer)", r"\1 "),
        (r"\b(he|she)'s (?=an? |the |not |no |in |from |based |working |living |allergic )", r"\1 is "),
        (r"\b(they|we)'re\b", r"\1 is"),
        (r"\b(they|we)'ve\b", r"\1 have"),
    )
)
SHORT = tuple(
    (lazily(pattern), short)
    for pattern, short in (
        (r"\bi'm\b|\bi am\b", "i is"),
        (r"\bi've\b", "i have"),
        (r"\b(ha(?:ve|s)) got\b", r"\1"),
        (r"\bi'd (?=rather|like|prefer)", "i "),
        (r"\b(do|does|did|is|are|was|can|could|wo|would|should)n't\b", r"\1 not"),
        (r"\b(?:am|are)\b", "is"),
        (r"\bcannot\b|\bcan't\b", "can not"),
        (r"\bcan not (?:stand|bear)\b|\bloathes?\b", "hate"),
        (r"\bwould (?=rather|like|prefer)", ""),
        (
            r"\b(?:now|currently|actually|these days|anymore|any more|really|nowadays|at the moment|always|usually|"
            r"generally|still|already) ",
            "",
        ),
        (
            r",? ?(?:now|again|currently|these days|anymore|any more|nowadays|at the moment|please|always|already|"
            r"from now on)$",
            "",
        ),
    )
)
VERB = r"(?:prefer|like|love|want|need|favou?r|enjoy|wish for|choose|pick|go for|rather have|rather use)s?(?:ed)?"
CHANGED = (
    r"(?:moved|pushed|put|shifted|postponed|extended|changed|switched|set|raised|lowered|cut|increased|reduced|dropped|"
    r"updated|renamed|brought forward|rescheduled|limited)(?: back| forward| up| down)?"
)
THING = lazily(
    r"^(?:the |this |my )?(?P<attr>[\p{L}\p{N}][\p{L}\p{N} '/-]{1,40}?) "
    r"(?:is|was|has been|have been|will be|got|went|rose|fell|grew|climbed|(?P<does>start|begin|end|close|open)s?|"
    rf"takes place|happens?|comes?)(?: only)?(?: (?:{CHANGED}|up|down)?(?: from .+?)? ?to)?(?: (?:at|on|in|by))? "
    r"(?P<v>.+)$"
)
SET = lazily(
    rf"^i (?:have |has )?{CHANGED} (?:the |my |this )?"
    r"(?P<attr>[\p{L}\p{N} '/-]{2,40}?)(?: from .+?)? to (?P<v>.+)$"
)
ZH_THING = lazily(
    r"^(?:这个|那个|本|新的?|的)*(?P<attr>[\p{Han}a-zA-Z]{2,12}?)(?:已经?|现在|目前)?(?:是|为|在|定在|安排在|(?:改|换|变|推迟|提前|调|调整|延期?|升|涨|降|"
    r"提高|降低|移)(?:到|成|为|至)了?)(?P<v>.+)$"
)
LEFT = lazily(
    r"^i (?:have |has |just |recently )*(?:sold|left|quit|dropped|ditched|abandoned|cancelled|gave up|got rid of|"
    r"replaced|"
    r"retired|stopped (?:using|drinking|eating|taking)|(?:switched|moved|migrated|changed|went) (?:away )?from|"
    r"do not (?:use|"
    r"have|own|drink|eat) (?=.+ any ?more$)|no longer (?:use|have|own|drink|eat)) (?:the |my |an? |its )?"
    r"(?P<old>.+?)(?: any ?more)?(?:,? (?:to|for|with|by|in favou?r of|over to|and) .+)?$"
    r"|^the .+ (?:was|has been|is) (?:replaced|moved|migrated|changed|switched) from (?P<from>.+?) to .+$"
)
ZH_LEFT = lazily(
    r"从(?P<old>[^，,。]{1,12}?)(?:换|改|搬|转|调|跳槽|迁移|切换)(?:到|成|为|去|至)|(?:把|将)(?P<old2>[^，,。]{1,12}?)(?:换|改)(?:成|为)|"
    r"(?:不再?|没有?)(?:使?用|喝|吃|抽|开|骑|养)(?P<old3>[^，,。了]{1,12})(?:了|$)|(?:离开|卖掉?|退订|注销|戒掉?)了?(?P<old4>[^，,。了]{1,12})"
)
CLAUSE = lazily(
    r"[;；，。]|,(?! (?:and|not|over)\b)|"
    r"(?:,? (?:and|but)(?: now)?) (?=(?:i|he|she|they|we|the user|now|currently|live|"
    r"work|use|drive|drink|eat|"
    r"prefer|like|speak|own|have|is|am|do)s?\b)"
)
BARE = lazily(
    r"^(?:now |currently )?(?:lives?|works?|uses?|drives?|drinks?|eats?|prefers?|likes?|speaks?|owns?|"
    r"ha(?:ve|s)|is|am)\b",
    regex.IGNORECASE,
)
NOT_SO = lazily(r"^i is (?:no longer|not) (?P<rest>.+)$")
IDENTITY = lazily(r"^i is (?:an? )?(?P<v>.+)$")
NEGATED = (
    r"(?:(?:do|does|did) (?:not|no longer)|no longer|never|stopped|quit|gave up|hates?|dislikes?|"
    r"avoids?|can not|can't stand)"
)
TASTED = lazily(
    r"^i (?:eat|drink|use|wear|smoke|watch|read|play|fly|drive|travel|take|buy|cook|listen|smok|eating|"
    r"drinking|smoking|using|"
    r"watching|playing|flying|driving)"
)
"""What a denial of it says about somebody's tastes: who does not remember a number has none."""
TAKEN_BACK = lazily(r"^(?:i )?(?:hates?|dislikes?|avoids?|can not stand|can't stand|stopped|quit|gave up|never) ")
DENIED = lazily(rf"^(?:i )?{NEGATED} (?P<rest>.+)$|^(?:never|do not|stop|no more) (?P<rest>.+)$")
DOING_WITHOUT = lazily(r"\b(?:no(?! ?,)|not|without|never|skip|stop|drop|avoid|hate)\b")
"""Of a wish in a few words: that it is for doing without (``no bullet points, please``)."""
LIKED = lazily(
    rf"^i {VERB} (?:to (?:use|have|get|receive|book|be|take|drink|eat|see|work with) |getting |having |"
    r"using |your |my )?(?P<v>.+)$"
)
ZH_DENIED_VERB = lazily(r"^(?:要|再|想|会|能)?(?:喜欢|用|使用|吃|喝|坐)?")
ZH_CHOSEN_VERB = lazily(r"^(?:用|使用|坐|住|喝|吃|穿|看|要|有)")
SPACES = lazily(r"\s+")
CONDITION = lazily(
    r",? ?(?<!\b(?:works?|working|employed) )\b(?:when(?:ever)?|if|for|during|while|on|in case of|unless|"
    r"except)\b (?P<what>[^,;]+)$|"
    r"^(?:when(?:ever)?|if|for|during|on) (?P<first>[^,]+), "
)
COMPARED = lazily(r"^(?P<a>.+?) (?:over|rather than|instead of|more than|and not|not) (?P<b>.+)$")
DIRECTIVE = lazily(
    r"^(?:always |never |do not |only |please )*(?:answer|reply|respond|write|speak|talk|use|call|format|show|"
    r"keep|give|send|"
    r"contact|book|address|include|avoid|stop|explain|summari[sz]e|quote|display|express|report|cite|mention|"
    r"start|end|round|number|list|sign)\b|^(?:always|never) (?!mind\b)\p{L}+ "
)
EN = tuple(
    (lazily(pattern), attribute)
    for pattern, attribute in (
        (
            r"^my (?:(?:new|current|preferred|actual) )*(?P<attr>[\p{L}\- ]{2,40}?)(?:'s name)? (?:is called|"
            r"is named|is|"
            rf"(?:is |was |has |has been |have been )?{CHANGED} to|will be)(?: now)? (?P<v>.+)$", ""),
        (
            r"^i (?P<attr>wakes? up|gets? up|goe?s? to bed|start work|finish work|eat (?:breakfast|lunch|"
            r"dinner)) at (?P<v>.+)$", ""),
        (r"^(?P<v>.+) is where i (?:live|lives|stay)$", "residence"),
        (
            r"^i (?:have|has|own|owns) (?:an? |one |the )?(?P<attr>\p{L}+(?: \p{L}+)?) (?:named|called|"
            r"by the name of) (?P<v>.+)$", ""),
        (r"^i is in (?:the )?(?P<v>\S+) (?:time ?zone)$", "time zone"),
        (r"^i (?:is|was) born (?:on |in )?(?P<v>.*\d.*)$", "birthday"),
        (r"^(?:i is called|i is named|call me|address me as|i go by) (?P<v>.+)$", "name"),
        (
            r"^i (?:live|lives|reside|resides|is based|is located|is living|(?:(?:have|has|just) )*settled|"
            r"stay) (?:in|at|"
            r"near) (?P<v>.+)$", "residence"),
        (r"^i (?:have |has |just |recently )*(?:moved|relocated)(?: from .+?)? to (?P<v>.+)$", "residence"),
        (r"^i (?:work|works|is working|is employed) (?:at|for|with|by) (?P<v>.+)$", "employer"),
        (
            r"^i (?:have |has |just |recently )*(?:left .+? (?:and|for) )?(?:joined|started at|"
            r"started working (?:at|for)|"
            r"switched jobs to) (?P<v>.+)$", "employer"),
        (r"^i (?:work|works|is working) as (?:an? |the )?(?P<v>.+)$", "occupation"),
        (r"^i (?:is|has become|became|is now) (?:an? )(?P<v>.+)$", "identity"),
        (
            r"^i (?:is|have|has) (?:an? )?(?:severe(?:ly)? |strongly )?(?:allergic to|allergy to|"
            r"allergies to) (?P<v>.+)$", "allergy"),
        (r"^i (?:have|has) an? (?P<v>.+) allergy$", "allergy"),
        (r"^i (?:speak|speaks) (?P<v>.+)$", "speaks"),
        (r"^i (?:have|has|own|owns) (?!become|been|had|to |got to )(?:an? |the )?(?P<v>.+)$", "owns"),
        (
            r"^i (?:use|uses|drive|drives|run|runs|switched to|have switched to|has switched to|migrated to|"
            r"moved over to) (?P<v>.+)$", "uses"),
        (
            r"^i (?:can )?(?P<v>(?:drink|eat|play|read|watch|study|collect|run|cycle|smoke|exercise|practi[sc]e|cook|"
            r"travel)s?(?: .+)?)$", "habit"),
    )
)  # fmt: skip
INVERTED = lazily(r"^(?P<v>.+) (?:is|are|was) what (?:i|the user|user|my) (?:prefer|like|love|want|choose)s?$")
WHEN_EN = lazily(
    r" (?:(?:last|this|next|a few) (?:week|month|year|summer|spring|fall|autumn|winter)s?|recently|"
    r"since (?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|may|june|july|"
    r"august|september|october|november|december)|(?:in|since) (?:19|20)\d\d|yesterday|today|a (?:week|month|"
    r"year) ago)$"
)
TAIL = lazily(r"[，,；;。!！]|\band (?:am|i|is)\b")
WHEN_ZH = lazily(r"^(?:上个?(?:月|周|星期)|去年|今年|最近|这个月|本月|前不久|不久前|前年|前天|昨天|本周)")
USE = lazily(r"^(?:use|call|dial|write to|take) the (?:new |other |correct )*(?P<attr>\p{L}+(?: \p{L}+)?) (?P<v>\S+)$")
SWITCHED = lazily(
    r"\b(?:switched|migrated|moved over|changed|upgraded) to\b|\bnow (?:use|drive|run|own|have)s?\b|\b(?:use|drive|"
    r"run)s? .+ now\b|"
    r"改用|换成|换用|转用|换了"
)
CALLED = lazily(
    r"^(?:(?:call|address) me (?:as )?|i (?:want|like|prefer|wish)s? to be (?:called|addressed as|"
    r"known as) )(?P<v>[\p{L}' -]{1,40})$"
)
ZH_LEAD = lazily(
    r"^(?:请(?:你)?(?:务必)?(?:记住|注意)|记住|记一下|注意|另外|其实|对了|顺便说一下|更正(?:一下)?|补充一下|"
    r"不对|不是的|抱歉|你好|还有|实际上|从现在起|从今以后|以后|今后|用户(?:说|表示|提到|告知|"
    r"指出)(?:过)?)[,，:：。!！ ]*"
)
ZH_SUBJECT = lazily(r"^(?:我|用户|本人|客户|他|她|您)(?:们)?")
ZH_FILL = lazily(
    r"(?:现在|现(?=居|住)|目前|如今|已经|一直|通常|一般|平时|总是|始终|一律|最近|刚刚|刚|都|只|以后|今后|"
    r"从现在起|还是|其实|每天(?=[吃喝抽]))"
)
ZH = tuple(
    (lazily(pattern), attribute)
    for pattern, attribute in (
        (r"^(?:叫我|叫做|叫|名叫|的?(?:名字|姓名)(?:是|叫|为))(?P<v>.+)$", "name"),
        (r"^(?:住在|居住在|搬到了?|搬去了?|搬家到了?|定居在?|家在|生活在)(?P<v>.+)$", "residence"),
        (r"^在(?P<v>.+?)(?:生活|居住|定居)(?:了)?$", "residence"),
        (r"^在(?P<v>.+?)(?:工作|上班|任职|就职)(?:了)?$", "employer"),
        (r"^(?:跳槽到|加入|入职|任职于|就职于|供职于|受雇于)了?(?P<v>.+)$", "employer"),
        (r"^[对有]?(?P<v>.{1,16}?)(?:严重)?过敏(?:症|史)?$", "allergy"),
        (r"^(?:会说|会讲|说|讲)(?P<v>.+语)$", "speaks"),
        (
            r"^(?:又|刚)?(?:换|改)了?(?:个|一个|一部)?新?的?(?P<attr>手机号码?|电话号码?|邮箱|地址|号码|车|公司|工作)"
            r"(?:是|为|[:：])?(?P<v>[^，,。]+)$", ""),
        (r"^(?P<v>[\p{Han}]{2,8}?)是(?:我|用户)?的?(?:职业|工作)$", "occupation"),
        (r"^的?(?P<attr>\p{Han}{1,6}?)(?:改名叫|名叫|改名为|叫)(?P<v>.+)$", ""),
        (r"^(?P<v>.+?)是(?:我|用户)?(?:居住|住)的(?:城市|地方)$", "residence"),
        (r"^(?:又|重新)?开始(?P<v>(?:吃|喝|抽|玩|看|听|骑|开|跑|练|打)\p{Han}.*)$", "habit"),
        (
            r"^(?:的)?(?P<attr>最喜欢的\p{Han}{1,8}?|最爱的\p{Han}{1,8}?|[\p{Han}a-zA-Z]{1,10}?)(?:是|为|改成了?|"
            r"改为了?|换成了?|变成了?)(?P<v>.+)$", ""),
        (r"^(?:是|成了)(?:一名|一个|一位|个)?(?P<v>.+)$", "identity"),
        (r"^(?:家里?)?(?:有|养了?)(?:一只|一条|一辆|一个|两个|两只)?(?P<v>.+)$", "owns"),
        (r"^(?:改用了?|换成了?|换用|转用|用的是)(?P<v>.+)$", "uses"),
        (r"^(?P<v>(?:吃|喝|抽|玩|看|听|骑|开|跑|练|打|养成)\p{Han}.*)$", "habit"),
    )
)  # fmt: skip
ZH_LIKE = lazily(
    r"^(?:请(?:你)?)?(?:更|比较|最|很|非常)?(?:喜欢|偏好|偏爱|想要|希望|倾向于?|习惯|需要|爱)(?P<v>.+)$|"
    r"^(?:请(?:你)?)(?:用|使用|以|给|把)?(?P<d>.+)$|^(?:用|使用)(?P<u>.+)$"
)
ZH_NOT = lazily(r"^(?:再也)?(?:不再|不|没|别|讨厌|戒了?|避免)(?P<v>.+)$")
ZH_THAN = lazily(r"^(?P<a>.+?)(?:而不是|胜过|多于|，不要|,不要|不要)(?P<b>.+)$")
ZH_TOPIC = lazily(
    r"^(?!我|用户|客户)(?P<what>\p{Han}{1,6}?)[,，]?(?=(?:我|用户|客户)(?:更|比较|最|一般|通常)?(?:喜欢|偏好|习惯|爱|不?吃|不?喝|不?用|不?坐|不?住))"
)
"""What a taste is about, said before whose it is."""
ZH_IF = lazily(r"^(?:如果|当|在)?(?P<what>.{1,16}?)(?:的时候|时(?![间区候常尚长刻])|的话)[,，]?")
PUNCT = lazily(r"[\s.!。！;；~～]+$")


SEATED = lazily(r"\b(?:sit|seat|flight|fly|train|plane)")
SIDES = {"window": lazily(r"\bwindow\b"), "aisle": lazily(r"\baisle\b")}
ANSWERS = lazily(r"\b(?:answer|repl(?:y|ies)|respon|explanation)|回答|回复|答复|解释")
LENGTHS = {"short": lazily(r"\b(?:short|shorter)\b"), "long": lazily(r"\b(?:long|longer|full)\b|长")}
