"""Classes of English words by which a first word is told to be a verb or not.

Compiled by hand from general knowledge of English.
"""

from __future__ import annotations

from rlvr_ifeval.ifbench_tables import word_set

MODALS = word_set("can may might must will need")
"""Auxiliaries that can be something else: a month, a name, a tin, a want."""

AUXILIARIES = word_set(
    """
    am is are was were be been being has have had having do does did doing done could would shall
    should cannot let's ain't
    """
)
"""Auxiliaries that are nothing else."""

PAST_ALONE = word_set(
    """
    arose ate awoke became began bit blew bore broke came chose did drank drew drove fell flew
    forbade forgave forgot froze gave got grew hid knew lay mistook overcame rang ran rode rose
    sang sank saw shook shrank sank sat slept slid spoke sprang stole stood strove swam swore took
    threw told tore went woke wore wove withdrew wrote undertook wept won
    """
)
"""Past forms that are no participle, or seldom one behind a noun."""

PAST = PAST_ALONE | word_set(
    """
    bought brought built burnt caught clung cost dealt dreamt dug fed felt fled fought found got
    heard held hit hung hurt kept knelt laid leapt learnt led left lent let lit lost made meant met
    paid put quit read said sold sent set shed shone shot shut spent sped spun spread stuck struck
    swept swung taught thought understood upheld withstood
    """
)
"""Past forms that are not regular."""

HOMOGRAPHS = word_set(
    """
    rose saw left found felt ground bore drew lay fell spoke shed wound cut cost hit set put shut
    split spread bet broken frozen lost hidden written spoken stolen drunk drunken lit swollen
    fallen forgotten forbidden sunken burnt stuck torn worn shot hurt
    """
)
"""Irregular forms that are nouns, names or adjectives as well."""

ADJECTIVES = word_set(
    """
    calm clean clear close complete cool correct counter direct double dry dull dim empty equal
    even express fancy fine firm fit flat free frequent humble idle last lean level light like live
    long lower mature mean moderate narrow near obscure open own perfect present prompt quiet rid
    round secure separate shy slim slow smart smooth sober spare square steady still subject
    substitute tame tan tidy thin treble triple utter warm welcome wet worst wrong blind bare blunt
    average approximate alternate articulate appropriate aggregate deliberate duplicate elaborate
    intimate legitimate graduate
    """
)
"""Verbs that are adjectives or adverbs as well."""

NAMES = word_set(
    """
    april art august bill bob carol chase chip chuck cliff dawn dean dot drew earl eve faith fay
    frank gene grace grant guy hank harry heath hope iris ivy jack jay jim joy june lance mark may
    mike miles nick norm pat peg penny pierce ray rich rob rock rod rose ruby rusty sally sandy sky
    skip stew stone storm sue summer ted tom tony trip violet wade ward will woody
    """
)
"""Given names among the verbs, months among them."""

CAUSATIVES = word_set("help let make watch see have hear feel notice observe keep get")
"""Verbs behind whose object a bare verb is no predicate of its own: "Help students learn"."""

SELDOM_PLURALS = word_set(
    """
    matter travel look flow fall rise like seem become happen follow drive carry hold mean come go
    keep help allow lead turn start stop begin appear move last talk speak cover cause remain lie
    require provide determine affect improve increase reduce reach run stay continue contribute
    contain consist depend exist occur grow live work make take bring give need want destroy
    attract spread smell taste sound feel pay equal affect vary break bite burn boil freeze float
    sink melt rust wait blow shine fly
    """
)
"""Of those that are nouns too, the ones whose form in -s is seldom a plural behind a noun."""

ZERO_PLURALS = word_set("fish staff cattle police sheep deer offspring poultry crew")
"""Nouns whose plural looks like a singular."""

PLURALS_ALONE = word_set("clothes goods leaves means lives sales")
"""Plurals that look like a verb's form in -s."""

GERUNDS_BEFORE_NOUNS = word_set(
    """
    advertising banking boarding bowling breathing building camping chewing cleaning closing
    cooking cooling dining drawing dressing drinking driving dwelling engineering evening fishing
    founding gambling governing heating hiking hearing housing hunting knitting landing leading
    lighting living manufacturing marketing meeting mining morning opening operating packaging
    painting parking planning playing printing racing reading recording riding rising running
    sailing sewing shipping shopping singing sitting skating skiing sleeping spending spelling
    sporting standing starting swimming teaching testing trading training turning voting waiting
    walking washing wedding weighing working writing
    """
)
"""Gerunds that often stand before a noun: a reading list, cooking oil."""

NOT_GERUNDS = word_set(
    """
    anything being ceiling cling darling during evening everything king morning nothing offspring
    ping ring sibling sling something spring sterling sting string swing thing viking wedding wing
    """
)
"""Words that end like a participle and are none."""

NUMBERED = word_set(
    """
    step figure part section phase stage level question answer table note point exercise chapter
    round page option number rule act scene book group case unit item task test week day play
    """
)
"""Nouns that a number often follows: "Step 2"."""

OTHER_CLASSES = word_set(
    """
    a an the this that these those each every either neither some any no none all both half many
    much more most few fewer less least several enough such what which whose who whom i you he she
    it we they me him us them mine yours ours theirs my your his her its our their one two three
    four five six seven eight nine ten hundred thousand million first second third next other
    another myself nobody everybody somebody anybody everyone someone anyone nothing everything
    something anything and or but nor so yet if although though because unless until while whereas
    when whenever where wherever since as than before after once in on at by for from of off into
    onto over under above below between among through across along against toward towards upon
    within without with about around behind beside besides beyond during despite except inside
    outside past per till to via like unlike near here there now then today tomorrow yesterday
    tonight always never often sometimes usually rarely seldom soon already again also too even
    just only still perhaps maybe however therefore thus hence moreover furthermore meanwhile
    instead otherwise nevertheless nonetheless indeed anyway not very quite rather almost nearly
    yes no yeah ok okay sure hello hi hey dear oh ah wow well please sorry welcome thanks alas ago
    away back up down out how why whether ever later earlier early late fast hard long far
    everywhere somewhere together alone apart aside abroad good great bad best better new old big
    small high absolutely certainly definitely
    """
) - word_set("down near second even back welcome please out long better still")
"""Words of other classes, which begin no imperative."""

OBJECTS = word_set(
    """
    the a an my your his her its our their this these those each every some any all both another no
    many several few enough two three four five six seven eight nine ten me him them us it yourself
    yourselves himself herself itself themselves ourselves everyone everything someone something
    anyone anything nothing
    """
)
"""What begins an object."""

SUBJECTS = word_set(
    """
    i you he she we they there who which that it what
    """
)
"""Subjects of a clause of their own."""

DETERMINERS = word_set(
    """
    the a an my your his her its our their me him us them it
    """
)
"""What begins an object and hardly a time: not "every three months"."""

SUBORDINATE = word_set(
    """
    like when if because whom whose where while until unless before after since as how why whether
    so although though than then once whenever wherever
    """
)
"""Words that begin a clause of their own."""

PREPOSITIONS = word_set(
    """
    of in on at to for with by from into onto over under about through across along against between
    among around behind beside near past toward towards without within up down off out away back
    forward ahead upon per like
    """
)
"""Prepositions and particles."""

AFTER_PARTICIPLES = word_set(
    """
    by from with in on at for to into using as of
    """
)
"""What stands behind a participle that belongs to the noun before it."""

PLACES = word_set(
    """
    in on at from to into
    """
)
"""Of those, the ones that stand behind a predicate as well."""

ADVERBS = word_set(
    """
    here there now then again well hard fast early late often always never together once twice
    daily weekly today tomorrow yesterday soon left right north south east west home longer forward
    backward ahead apart aside higher lower faster harder better more less big small high low
    straight still first completely gently only too not
    """
)
"""Adverbs that stand behind a verb."""

PLURALS = word_set(
    """
    people children men women media
    """
)
"""Plurals without an s."""

CLAUSE_TAKING = word_set(
    """
    show claim state report mean note signal hint stress
    """
)
"""Verbs that are nouns too and that a clause with "that" follows."""
