"""Words that make a question and say nothing of what is asked: articles, pronouns, auxiliaries, interrogatives.

How rare a word is tells what it says of a text, but not of these: few texts of a dialogue hold ``which`` or ``哪些``,
while every question does. A search that takes them for rare words finds other questions. They count ``LIGHT`` of what
they would, so that a query of such words alone still finds what holds them. The lists are short, of the languages that
are asked in most, and leave out what is a word of substance in another of them (``die``, ``war``, ``come``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from projections.retrieval.words import words

LIGHT = 0.1
"""How much a word of asking counts, in parts of another that is as rare."""

_SPACED = """
a an the and or but of to in on at by for from with about as into than then so if
i me my mine you your yours he him his she her hers it its we us our they them their this that these those there here
what which who whom whose when where why how
do does did done doing is are was were be been being am has have had having can could shall should would will may might
not no yes s t d m re ve ll don didn doesn isn aren wasn weren hasn haven hadn couldn wouldn shouldn
any some all both each ever once before again just also only very too please right
remember recall tell mention mentioned
der das den dem des ein eine einen einem einer und oder ich du er sie wir ihr mir dir mich dich uns euch mein meine dein
deine was wer wen wem wann wo warum wie welche welcher welches ist sind hat habe hast haben hatte wurde mit fur von zu
le la les un une et ou je tu il elle nous vous ils elles mon ma mes ton ta tes son sa ses que qui quoi quel quelle quels
quelles quand pourquoi comment est sont ai avez avait etait dans sur pour avec du des de d l c j qu
el los las una uno y o yo mi tu su nos que quien cual cuales cuando donde como es son era fue ha han he en con por para
os as um uma e ou eu meu minha seu sua qual quais quando onde quem por que foi foram em no na com
il lo gli i uno e io mio mia tuo tua che chi quale quali quando dove perche sono era ho hai nel della
и в на с что кто какой какая какие когда где почему как я ты мы вы он она мне меня мой моя твой был была было это не ли
"""

_SPACELESS = """
我 你 您 他 她 它 们 的 了 吗 呢 吧 啊 是 在 有 和 跟 与 给 对 这 那 哪 些 什 么 怎 样 为 过 曾 经 记 得 还 当 时 个 一
几 多 少 谁 都 很 不 请 问 就 也 又 把 被 让 从 到 会 能 可 以 要
の は が を に で も か て だ ま ね よ 何 誰
은 는 을 를 에 무 엇 뭐 누 구 어 디 왜 요 까 니 습 했
"""

_WORDS = frozenset(words(_SPACED))
_CHARACTERS = frozenset(words(_SPACELESS))


def substance(query: Sequence[str]) -> Mapping[str, float]:
    """What each word of a query counts, ``LIGHT`` or 1; a pair of characters is light when both of them are.

    ``query``: its words, as ``words`` gives them.
    """
    return {word: LIGHT if _is_light(word) else 1.0 for word in query}


def _is_light(word: str) -> bool:
    return word in _WORDS or all(character in _CHARACTERS for character in word)
