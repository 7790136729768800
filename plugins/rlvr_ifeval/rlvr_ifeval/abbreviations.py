"""American English abbreviations for the sentence splitter, as a newspaper writes them.

NLTK's Punkt splitter needs a model: abbreviations, words that often begin a sentence, and words
that are lower-case unless they begin one. Its own English model must be downloaded; these lists
stand in for it; the plugin's README says how often the two differ.
"""

from __future__ import annotations

from importlib import resources


def _words(name: str) -> frozenset[str]:
    path = resources.files("rlvr_ifeval") / "words" / f"{name}.txt"
    return frozenset(path.read_text("utf-8").split())


_TITLES = "mr mrs ms messrs dr prof gen rep reps sen col lt st jr sr ph.d m.b.a"
_COMPANIES = "inc corp co cos ltd bros cie n.v s.a s.p.a b.v a.g s.s"
_MONTHS_AND_DAYS = "jan feb aug sept sep oct nov dec tues wed fri yr"
_STATES = (
    "ala ariz calif colo conn fla ga ill kan ky mich minn nev okla ore pa tenn va vt wash "
    "wis n.c n.d n.h n.j n.m n.y s.c d.c w.va"
)
_COUNTRIES = "u.s u.k u.n u.s.a u.s.s.r"
_UNITS_AND_TIMES = "a.m p.m vs v ft ave ct sw maj adm mg chg ok"
_GIVEN_NAMES = (
    "a.c a.h a.s a.t b.f c.v d.h d.w e.f e.h e.l e.m f.g f.j g.d g.f g.k h.c h.f h.m "
    "j.b j.c j.j j.k j.p j.r l.a l.f l.p m.j r.a r.h r.i r.j r.k r.t s.g t.j w.c w.r w.w a.a a.d"
)
_LETTERS = "c d e f g h k l m n p r s t w"
ABBREVIATIONS = frozenset(
    " ".join(
        (
            _TITLES,
            _COMPANIES,
            _MONTHS_AND_DAYS,
            _STATES,
            _COUNTRIES,
            _UNITS_AND_TIMES,
            _GIVEN_NAMES,
            _LETTERS,
        )
    ).split()
)
"""Lower-case, without the last period: a period after one does not end a sentence by itself."""

_STARTERS = (
    "according although among both but despite even he however i if in indeed instead it "
    "many meanwhile moreover most nevertheless nonetheless nor sales separately similarly "
    "since so some the there these they this though thus under when while yet "
)
STARTERS = frozenset(_STARTERS.split())
"""Capitalised after an abbreviation, they begin a sentence."""

_AFTER_NUMBERS = (
    "business commodities corrections credit dividend financing insider international leisure "
    "letters notable review who"
)
AFTER_NUMBERS = frozenset(_AFTER_NUMBERS.split())
"""A number and a period before one do not end a sentence, as in ``3. Review``."""

ORDINARY = _words("ordinary")
"""Lower-case unless they begin a sentence: capitalised after an abbreviation, they begin one."""
SOMETIMES_NAMES = _words("sometimes_names")
"""Lower-case as a rule and at times part of a name: after an initial, they begin a sentence."""
