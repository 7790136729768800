"""Whether an English text begins with a verb, by a list of verbs and their regular forms.

IFBench asks NLTK's trained tagger, which reads a capitalised first word as a name now and then;
a list has no such slips, and does not know rare verbs.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_ifeval.ifbench_tables import word_set
from rlvr_ifeval.ifbench_text import spaced_words

_FORMS = word_set(
    """
    am is are was were be been being has have had having do does did doing done can could will
    would shall should may might must ain't let's arose arisen ate eaten awoke awoken beat
    beaten became began begun bent bet bit bitten bled blew blown bore born borne bought bound
    bred broke broken brought built burnt burst came caught chose chosen clung cost crept cut
    dealt dove drank drunk drawn dreamt drew driven drove dug fallen fed fell felt fled flew
    flown flung forbade forbidden forgave forgiven forgot forgotten fought found froze frozen
    gave given gone got gotten grew ground grown heard held hid hidden hit hung hurt kept
    knelt knew known laid lain lay leant leapt learnt led left lent let lit lost made meant
    met mistook overcame overcome paid proven put quit ran rang read ridden risen rode rose
    rung said sang sank sat saw seen sent set sewn shaken shed shone shook shot shown shrank
    shrunk shut slept slid slung sold sought sown spat sped spent split spoke spoken spread
    sprang sprung spun stole stolen stood struck strung stuck stung sung sunk sworn swam swept
    swollen swore swum swung taken taught thought threw thrown told took tore torn undertook
    undertaken undone understood upheld went wept withdrew withdrawn withheld woke woken won
    wore worn wove woven written wrote dying lying tying
    """
)
"""Auxiliaries and irregular forms."""

_BASES = word_set(
    """
    abandon abide abolish absorb accelerate accept access accommodate accompany accomplish
    account achieve acknowledge acquire act activate adapt add address adhere adjust
    administer admire admit adopt advance advertise advise advocate affect affirm afford
    aggregate agree aim alert align allocate allow alter alternate analyse analyze anchor
    announce answer anticipate apologize appeal appear apply appoint appreciate approach
    approve argue arise arm arrange arrest arrive ascend ascertain ask assemble assert assess
    assign assist associate assume assure attach attack attain attempt attend attract audit
    author automate avoid await awaken award back bake balance ban bathe battle be bear beat
    become beg begin behave behold believe belong bend benefit bet beware bind bite blame
    blaze bless blend block bloom blow boast boil bolster book boost borrow bounce bow brace
    brainstorm branch break breathe breed brew bridge bring broaden browse brush build burn
    burst bury buy bypass calculate calibrate call calm campaign cancel capture care carry
    carve cast catch categorize cater cause cease celebrate center certify chain challenge
    change channel charge charm chart chase chat check cheer cherish chew chop choose cite
    claim clarify classify clean clear click climb cling close clothe coach coat code
    collaborate collapse collect color combat combine come comfort command commence comment
    commit communicate compare compel compete compile complain complement complete comply
    compose comprehend compress compute conceal concede conceive concentrate conclude condemn
    conduct confess configure confine confirm conform confront confuse congratulate connect
    conquer consider consist consolidate construct consult consume contact contain contemplate
    continue contract contrast contribute control convene converge converse convert convey
    convince cook cool cooperate coordinate cope copy correct correlate correspond counsel
    count counter couple cover crack craft crash crave crawl create creep criticize cross
    crush cry cultivate curate cure cut cycle dance dare dash date deal debate debug decide
    declare decline decode decorate decrease dedicate deduce deem deepen defeat defend define
    delay delegate delete deliver delve demand demonstrate deny depart depend depict deploy
    derive descend describe deserve design desire destroy detail detect determine develop
    deviate devise devote diagnose dictate die differ differentiate dig digest diminish dine
    dip direct disagree disappear discard discern discharge discipline disclose discover
    discuss dislike dismiss dispatch display dispute disrupt dissolve distinguish distribute
    dive diversify divide document dodge dominate donate doubt download draft drag draw dream
    dress drift drill drink drip drive drop drown dry dwell earn ease eat echo edit educate
    elaborate elect elevate elicit eliminate emancipate embark embed embody embrace emerge
    emit emphasize employ empower emulate enable enact encapsulate encompass encounter
    encourage end endorse endure enforce engage engineer enhance enjoy enlarge enlighten
    enlist enrich enroll ensure entail enter entertain envelop envision equip erase escape
    establish estimate evaluate evoke evolve examine exceed excel exchange exclaim exclude
    execute exemplify exercise exert exhibit exist expand expect expedite experience
    experiment explain explode exploit explore export express extend extract face facilitate
    factor fade fail fall familiarize fancy fashion fasten favor fear feature feed feel fetch
    fight figure file fill film filter finalize finance find finish fire fit fix flash flatten
    flee flip float flood flourish flow fly focus fold follow fool forbid force forecast
    foresee forge forget forgive form formalize format formulate forward foster found frame
    free freeze frequent fret frown fuel fulfill function fund gain gallop gather gauge gaze
    generalize generate get give glance glide glimpse glow go govern grab grant grapple grasp
    greet grieve grill grind grip group grow guarantee guard guess guide halt hammer hand
    handle hang happen harbor harmonize harness harvest hasten hate haul have heal hear heat
    heed help hesitate hide highlight hike hint hire hit hold honor hop hope host hover hug
    hum hunt hurry hurt hypothesize identify ignite ignore illuminate illustrate imagine
    imitate immerse impact implement imply import impose impress improve incline include
    incorporate increase incur indicate induce indulge infer inflate influence inform infuse
    inhabit inherit inhibit initialize initiate inject innovate input inquire insert insist
    inspect inspire install instill instruct integrate intend intensify interact intercept
    interpret interrupt intervene interview intrigue introduce invent invest investigate
    invite invoke involve isolate issue iterate jog join joke journey judge juggle jump
    justify keep kick kill kindle kiss kneel knit knock know label lack land last laugh launch
    lay lead lean leap learn leave lend lengthen lessen let level leverage license lie lift
    light like limit line linger link list listen live load loan locate lock log long look
    loop lose love lower maintain make manage mandate manifest manipulate manufacture map
    march mark market marry marvel mash master match mature maximize mean measure mediate
    meditate meet melt mention merge migrate mind mine minimize mirror miss mitigate mix
    mobilize model moderate modernize modify monitor motivate mount mourn move multiply name
    narrate narrow navigate need neglect negotiate nest nominate normalize note notice notify
    nourish nurture obey object oblige obscure observe obtain occupy occur offer offset omit
    open operate opt optimize orchestrate order organize orient originate outline output
    outweigh overcome overlook override oversee owe own pack package paint parse part
    participate partner pass paste patch pause pave pay peel perceive perfect perform permit
    persevere persist persuade pick picture pilot pin pinpoint place plan plant play plead
    please pledge plot plow plug plunge point polish ponder portray pose position possess post
    postpone pour practice practise praise pray preach precede predict prefer prepare present
    preserve press presume pretend prevail prevent price print prioritize probe proceed
    process procure produce profile program progress prohibit project prolong promise promote
    prompt pronounce proofread propel propose prosper protect prove provide provoke prune
    publish pull pump punch purchase purify pursue push put quantify query quest question quit
    quote race raise rally randomize rank rate reach react read realize reap reason reassure
    rebuild recall receive recite reckon recognize recommend reconcile reconsider record
    recount recover recruit recur recycle reduce refactor refer refine reflect reform refrain
    refresh refuse refute regard register regret regulate reinforce reject rejoice relate
    relax release rely remain remark remember remind remove render renew renovate rent repair
    repeat replace replicate reply report represent reproduce request require research
    resemble reserve reset reside resist resolve resonate resort respect respond rest restate
    restore restrict result resume retain rethink retire retreat retrieve return reveal
    reverse review revise revisit revive revolve reward rewrite ride ring rinse rise risk roam
    roar roast roll rotate route rub rule run rush sail salute sample satisfy save savor saute
    say scale scan scatter schedule score scour scramble scrape scream screen scroll scrub
    sculpt search season secure see seek seem select sell send sense separate sequence serve
    set settle shake shape share sharpen shatter shed shift shine ship shoot shop shout show
    shower shrink shut sift sign signal signify simmer simplify simulate sing sink sip sit
    sketch skim skip slash sleep slice slide slip slow smell smile smooth snap soak soar solve
    sort sound sow spark speak specialize specify speculate speed spell spend spin splash
    split spot spread sprinkle sprint squeeze stabilize stack stage stand standardize stare
    start state station stay steal steer stem step stick stimulate stir stitch stop store
    strain strategize stream streamline strengthen stress stretch strike strip strive stroll
    structure struggle study stumble style submit subscribe substitute subtract succeed suffer
    suggest suit sum summarize summon supplement supply support suppose suppress surf surge
    surpass surprise surrender surround survey survive suspect suspend sustain swap swear
    sweep swim swing switch symbolize synchronize synthesize tackle tag tailor take talk tap
    target taste teach tear tell tempt tend terminate test thank thicken think thrive throw
    tie tighten tilt toast tolerate toss total touch tour trace track trade train transcend
    transcribe transfer transform transition translate transmit transport trap travel traverse
    treasure treat trek trigger trim triumph trust try tune turn tutor twist type uncover
    undergo underline underlie understand undertake undo unearth unfold unify unite unleash
    unlock unpack unravel unveil update upgrade uphold upload urge use utilize validate value
    vanish vary venture verify view violate visit visualize volunteer vote wait wake walk
    wander want warm warn wash waste watch water weaken wear weave weep weigh welcome whip
    whisk whisper widen win wind wipe wish withdraw withhold withstand witness wonder work
    worry worship wrap wrestle write yearn yell yield zoom
    """
)
"""Verbs in their base form."""

_ALSO_NOUNS = word_set(
    """
    access account act address answer approach attack audit author award balance ban bear
    benefit book bow branch bridge call campaign cast catch cause center chain challenge
    change channel charge chart chat claim coach coat code color combat command comment
    contact contract contrast control copy counter couple cover craft crash cycle dance dash
    date deal debate decline delay demand design desire detail display dispute document doubt
    draft dream dress drill drink drive drop end engineer escape estimate exchange exercise
    experience experiment export face factor fall fashion favor fear feature figure file film
    filter finance fire flash flood flow focus force forecast form format frame fuel function
    fund gain glance glow group guarantee guard guess guide hammer hand handle harbor harvest
    heat help highlight honor hope host impact import increase influence input interview issue
    joke journey judge kick label lack land laugh launch lead level license light limit line
    link list load loan lock log look loop love map march mark market master match measure
    mind mine mirror mix model mount move name need nest note notice object offer offset order
    outline output pack package paint part partner patch pause picture pilot place plan plant
    play plot point position post practice praise present press price print process produce
    profile program progress project promise prompt purchase query quest question quote race
    range rank rate reason record reform regard register release rent repair reply report
    request research reserve respect rest result resume return review reward ride ring rise
    risk roll route rule run sail sample scale slide schedule score screen search season sense
    sequence set shape share shift ship shop show shower sign signal sketch smell smile sound
    spark speed spell spin spot spread stack stage stand start state station stem step stop
    store strain stream stress stretch strike strip structure struggle study style sum supply
    support surge surprise survey switch tag talk target taste test time tour trace track
    trade train transfer transition transport trap travel treasure trigger trust turn type
    update upgrade use value venture view visit vote walk wash waste watch water wave wind
    wish witness wonder work yield
    """
)
"""Those among them that are as often nouns."""

_AFTER_A_NOUN = word_set(
    """
    of is are was were has have had will would can could may might must shall should and or
    nor but who whose that which
    """
)
"""Words that, after a word that can be both, show that it was a noun."""

_MODALS = word_set("may might must will can")
_MOSTLY_VERBS = word_set("travel look flow fall rise matter")
"""Of those that are nouns too, the ones whose form in -s is seldom a plural."""
_FINITE = word_set("is was has had will would of and 's")
_TIMES = word_set(
    """
    year month week night evening spring summer autumn fall winter time minute season century
    decade monday tuesday wednesday thursday friday saturday sunday january february march april
    may june july august september october november december but chance resort
    """
)
"""What the adjective "last" stands before."""

_NOUNS_IN_ING = word_set(
    """
    anything being ceiling cling darling during evening everything king morning nothing
    offspring ping ring sibling sling something spring sterling sting string swing thing
    viking wedding wing
    """
)
"""Words that end like a participle and are none."""

_ENOUGH = 4_000
"""Characters of a text that hold its first words."""


def starts_with_verb(text: str) -> bool:
    """Whether the first word of an English text is a verb in any form."""
    text = text[:_ENOUGH]
    words = spaced_words(text)
    if not words or text.lstrip().startswith("["):
        return False
    first = words[0].casefold()
    if _is_a_noun_here(first, words[1].casefold() if len(words) > 1 else ""):
        return False
    if first in _FORMS or first.endswith("n't"):
        return True
    if first.endswith("ing") and len(first) > 4 and first not in _NOUNS_IN_ING:
        return True
    base = _base(first)
    if base is None:
        return False
    return base not in _ALSO_NOUNS or first.endswith("ed") or (first == base and _acts(text, words))


def _is_a_noun_here(first: str, following: str) -> bool:
    """Whether the word behind shows that a first word that can be a verb is none."""
    if first in _MODALS:  # May is a month, Will was here
        return following in _FINITE
    if first == "last":
        return following in _TIMES
    if first not in _ALSO_NOUNS or not following.endswith("s") or following in _AFTER_A_NOUN:
        return False
    base = _base(following)  # Light travels, but: Light candles, Plan visits
    return base not in (None, following) and (base not in _ALSO_NOUNS or base in _MOSTLY_VERBS)


def _acts(text: str, words: Sequence[str]) -> bool:
    """Whether a first word that can be verb or noun is not shown to be the noun."""
    following = words[1].casefold() if len(words) > 1 else ""
    heading = any(word.rstrip("*_").endswith(":") for word in text.split()[:2])
    return not heading and following not in _AFTER_A_NOUN and not following.isdigit()


def _base(word: str) -> str | None:
    """The base form of a verb's regular form; None for a word that is no verb we know."""
    if _known(word):
        return word
    for ending, restored in _ENDINGS:
        if word.endswith(ending):
            stem = word[: -len(ending)]
            if _known(stem + restored):
                return stem + restored
            if ending == "ed" and stem[-2:-1] == stem[-1:] and _known(stem[:-1]):
                return stem[:-1]
    return None


def _known(word: str) -> bool:
    """Whether a word is a base form, or made from one or by a verb's suffix."""
    if word in _BASES or word.removeprefix("re") in _BASES:
        return True
    if word.endswith(("ize", "ise", "ify", "yse")):
        return f"{word[:-2]}ze" in _BASES or (
            word.endswith(("ize", "ify")) and word not in ("size", "prize")
        )
    return False


_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ied", "y"), ("ed", "e"), ("ed", ""))
"""Endings of verbs, and what each replaced."""
