"""English verbs: base forms, irregular forms, and those that are nouns as well.

Compiled by hand from general knowledge of English.
"""

from __future__ import annotations

from rlvr_ifeval.ifbench_tables import word_set

FORMS = word_set(
    """
    arose arisen ate eaten awoke awoken beat beaten became began begun bent bet bit bitten bled
    blew blown bore born borne bought bound bred broke broken brought built burnt burst came caught
    chose chosen clung cost crept cut dealt dove drank drunk drawn dreamt drew driven drove dug
    fallen fed fell felt fled flew flown flung forbade forbidden forgave forgiven forgot forgotten
    fought found froze frozen gave given gone got gotten grew ground grown heard held hid hidden
    hit hung hurt kept knelt knew known laid lain lay leant leapt learnt led left lent let lit lost
    made meant met mistook overcame overcome paid proven put quit ran rang read ridden risen rode
    rose rung said sang sank sat saw seen sent set sewn shaken shed shone shook shot shown shrank
    shrunk shut slept slid slung sold sought sown spat sped spent split spoke spoken spread sprang
    sprung spun stole stolen stood struck strung stuck stung sung sunk sworn swam swept swollen
    swore swum swung taken taught thought threw thrown told took tore torn undertook undertaken
    undone understood upheld went wept withdrew withdrawn withheld woke woken won wore worn wove
    woven written wrote dying lying tying
    """
)
"""Irregular forms, without auxiliaries."""

BASES = word_set(
    """
    abandon abhor abide abolish absorb accelerate accept access accommodate accompany accomplish
    account achieve acknowledge acquire act activate adapt add address adhere adjust administer
    admire admit adopt advance advertise advise advocate affect affirm afford age aggregate agree
    aid aim alert align allege allocate allow alter alternate analyse analyze anchor announce annoy
    answer anticipate apologise apologize appeal appear applaud apply appoint appreciate approach
    appropriate approve approximate argue arise arm arrange arrest arrive articulate ascend
    ascertain ask assemble assert assess assign assist associate assume assure attach attack attain
    attempt attend attest attract audit author automate average avoid await awaken award back bag
    bait bake balance ban bank bar bare bark base basket bat bath bathe battle be beam bear beat
    become beg begin behave behold believe bell belong bend benefit bet beware bid bike bill bin
    bind bite blame blast blaze blend bless blind blink block blog bloom blow blunt board boast
    boat boil bolster bolt bomb bond bone boo book boost boot border borrow boss bother bottle
    bottom bounce bow bowl box brace brainstorm brake branch brand bread break breathe breed brew
    brick bridge bring broadcast broaden broil browse brush bubble budget bug build bulk bully bump
    bundle burn burst bury bus butcher butter button buy buzz bypass cab cage cake calculate
    calibrate call calm camp campaign cancel candy canoe canter cap capture card care carry carve
    cash cast catch categorize cater cause cease celebrate center certify chain chair chalk
    challenge change channel charge charm chart chase chat check cheer cherish chew chill chip
    chirp choose chop circle cite claim clamp clap clarify classify clatter clay clean clear click
    climb cling close clothe cloud club cluster coach coal coat code coin collaborate collapse
    collect color column comb combat combine come comfort command commence comment commit
    communicate compare compass compel compete compile complain complement complete comply compose
    comprehend compress compute conceal concede conceive concentrate conclude condemn condense
    conduct confess configure confine confirm conflict conform confront confuse congratulate
    connect conquer consider consist consolidate construct consult consume contact contain
    contaminate contemplate contend contest continue contract contrast contribute control convene
    converge converse convert convey convince cook cool cooperate coordinate cope copy cork corner
    correct correlate correspond corrode corrupt cost counsel count counter couple course court
    cover crab crack crackle craft crash crave crawl cream crease create creep crew criticize
    crochet crop cross crouch crowd crown crush cry cube cultivate curate cure curl curse curtain
    curtsy curve cushion cut cycle damage dance dare dash date deal debate debug decay decide deck
    declare decline decode decorate decrease dedicate deduce deduct deed deem deepen default defeat
    defend define defrost delay delegate delete deliberate deliver delve demand demonstrate deny
    depart depend depict deploy deposit derive descend describe deserve design desire destroy
    detail detect determine develop deviate devise devote diagnose dice dictate die diet differ
    differentiate dig digest dim diminish dine dip direct disagree disappear discard discern
    discharge discipline disclose discover discuss dish disk dislike dismiss dispatch display
    dispute disrupt dissolve distinguish distribute dive diversify divide dock doctor document
    dodge dog dollar domain dominate donate double doubt download draft drag drain draw dream dress
    drift drill drink drip drive drizzle drop drown dry duck dull dump duplicate dust duty dwell
    ear earn ease eat echo edit educate egg elaborate elbow elect elevate elicit eliminate email
    emancipate embark embed embody embrace emerge emit emphasize employ empower empty emulate
    enable enact encapsulate encompass encounter encourage end endorse endure enforce engage
    engineer enhance enjoy enlarge enlighten enlist enrich enroll ensure entail enter entertain
    envelop envision equal equip erase escape essay establish estimate evaluate evaporate even
    evoke evolve examine exceed excel exchange exclaim exclude execute exemplify exercise exert
    exhale exhibit exist exit expand expect expedite experience experiment explain explode exploit
    explore export express extend extract eye face facilitate factor fade fail fall familiarize fan
    fancy farm fashion fasten father fault favor favour fax fear feature feed feel fence ferment
    fetch fiddle fight figure file fill film filter finalize finance find fine finger finish fire
    firm fish fit fix flag flame flash flat flatten flatter flavor flee flight flip float flood
    flour flourish flow flower fly foam focus fog fold follow fool foot forbid force forecast
    foresee forest forge forget forgive fork form formalize format formulate forward foster found
    frame free freeze frequent fret frown fruit fry fuel fulfill function fund gain gallop gas
    gather gauge gaze gear generalize generate get gift give glance glare glass glide glimpse
    glisten glitter glow glue go govern grab grade graduate grain grant grapple grasp grass gravel
    graze greet grieve grill grind grip ground group grow growl growth guarantee guard guess guide
    guitar gulp gun hail halt halve hammer hand handle hang happen harbor harmonize harness harvest
    hasten hat hatch hate haul have head heal hear heat heave heckle hedge heed helmet help hem
    herd hesitate hide highlight hike hint hire hiss hit hoe hoist hold hole honey honor hook hop
    hope horn hose host house hover howl hug hum humble hunt hurl hurry hurt hypothesize ice
    identify idle ignite ignore illuminate illustrate imagine imitate immerse impact implement
    imply import impose impress improve inch incline include incorporate increase incur index
    indicate induce indulge infer inflate influence inform infuse inhabit inhale inherit inhibit
    initialize initiate inject ink innovate input inquire insert insist inspect inspire install
    instill instruct insult integrate intend intensify interact intercept interpret interrupt
    intervene interview intimate intrigue introduce invent invest investigate invite invoke involve
    iron isolate issue itch iterate jail jam jest jet jewel jingle jog join joke journey judge
    juggle juice jump justify keep kettle key kick kill kindle kiss knead kneel knife knit knock
    knot know label lace lack ladder lamp land last laugh launch lay lead leaf leak lean leap learn
    leather leave legitimate lemon lend lengthen lessen let letter level lever leverage license
    lick lie lift light like lime limit limp line linger link list listen litter live load loan lob
    locate lock log long look loom loop loosen lose loss love lower lunch lunge lurch lure lurk
    magnet mail maintain make manage mandate manifest manipulate manufacture map march marinate
    mark market marry marvel mash mask master mat match mate matter mature maximize mean measure
    medal mediate meditate meet melt mention menu merge mess metal microwave migrate milk mince
    mind mine minimize mint mirror miss mistake mitigate mix mobilize mock model moderate modernize
    modify monitor moon mop mother motivate mount mourn move mud mug multiply muscle mushroom nail
    name narrate narrow navigate near need needle neglect negotiate nest nestle net night nod noise
    nominate normalize nose note notice notify nourish nudge number nurture oar obey object oblige
    obscure observe obtain occupy occur offer offset oil omit open operate opine opt optimize orbit
    orchestrate order organize orient originate outline output outweigh oven overcome overlook
    override oversee overtake owe own pack package paddle page pain paint palm pan panel paper
    pardon park parse part participate partner pass paste patch patrol pattern pause pave pay peak
    pearl pedal peel pelt pen pencil people pepper perceive perch perfect perform permit persevere
    persist persuade pet phone phrase piano pick picture pig pile pillow pilot pin pinch pinpoint
    pipe pit pitch place plan plane plant plaster plate platform play plea plead please pledge plot
    plow plug plum plunge pocket poem point poison poke pole polish pollute pond ponder pool port
    portray pose position possess post postpone pour powder practice practise praise prance pray
    preach precede precipitate predict prefer preheat prepare present preserve press pressure
    presume pretend prevail prevent price print prioritize prize probe proceed process procure prod
    produce profile program progress prohibit project prolong promise promote prompt pronounce
    proofread propel propose prosper protect prove provide provoke prune publish pull pump punch
    punt purchase purge purify purr pursue push put puzzle quantify quarter query quest question
    quiet quip quit quote race raft rail rain raise rake rally randomize range rank ransom rate
    ration rattle rave reach react read realize reap reason reassure rebel reboot rebuild recall
    receive recipe recite reckon recognize recommend reconcile reconsider record recount recover
    recruit recur recycle reduce refactor refer refine reflect reform refrain refresh refuse refute
    regard register regret regulate reinforce reject rejoice relate relax relay release rely remain
    remark remember remind remove render renew renovate rent repair repeat replace replicate reply
    report represent reproduce request require research resemble reserve reset reside resist
    resolve resonate resort respect respond rest restart restate restore restrict result resume
    retain rethink retire retort retreat retrieve return reveal reverse review revise revisit
    revive revolve reward rewrite rhyme ribbon rice ride ridge rim ring rinse rip ripen ripple rise
    risk river road roam roar roast robe rock rocket rod roll roof room roost root rope rose rot
    rotate round route row rub rule rumble run rush rust rustle sack saddle sail salad salt salute
    sample sand satisfy sauce saute save savor saw say scale scan scare scatter schedule school
    scissors scold scoop score scour scramble scrap scrape scratch scream screen screw scroll scrub
    sculpt sea seal search season seat secure sediment see seed seek seem segment select sell send
    sense separate sequence serve set settle sew shade shadow shake shape share sharpen shatter
    shed shelf shell shelter shield shift shimmer shine ship shiver shock shoe shoot shop shot
    shoulder shout shove shovel show shower shred shrink shrug shut shy side sift sigh sign signal
    signify silence silver simmer simplify simulate sin sing sink sip sit skate sketch ski skid
    skim skin skip slam slant slap slash slave sleep sleeve slice slide slim slip slope slow slump
    smack smart smell smile smooth snack snap sneeze snore snow soak soap soar sob sober soil
    solder soldier solidify solve soothe sort sound soup sow space spare spark sparkle spawn speak
    specialize specify speculate speed spell spend spice spill spin spit splash split spoil sponge
    spoon sport spot spray spread spring sprinkle sprint sprout square squat squeeze stabilize
    stable stack staff stage stagger stall stamp stand standardize star stare start state station
    stay steady steal steam steer stem step stew stick still stimulate stir stitch stock stomach
    stone stop store storm story stove strain strand strap strategize straw stream streamline
    strengthen stress stretch stride strike string strip strive stroke stroll structure struggle
    study stumble style subject sublimate submit subscribe substitute subtract succeed suck suffer
    sugar suggest suit sum summarize summer summon sun supervise supplement supply support suppose
    suppress surf surface surge surmise surpass surprise surrender surround survey survive suspect
    suspend sustain swallow swap sway swear sweat sweep swell swerve swim swing swipe swirl switch
    symbolize synchronize synthesize syrup table tackle tag tail tailor taint take talk tame tan
    tank tap tape target tarnish taste tax taxi teach team tear tease tell temple tempt tend tent
    terminate test testify text thank thicken thin think thread thrive throne throw thud thumb
    thump thunder tick ticket tickle tide tidy tie tighten tile tilt time tin tinkle tip tiptoe
    tire title toast toe tolerate tongue tool tooth top toss total touch tour tow towel tower town
    toy trace track trade traffic trail train trample transcend transcribe transfer transform
    transition translate transmit transport trap trash travel traverse tray tread treasure treat
    treble tree trek trick trigger trim trip triple triumph trot trouble truck trumpet trunk trust
    try tube tug tumble tune tunnel turn tutor tweet twin twinkle twist type umbrella uncover
    undergo underlie underline understand undertake undo unearth unfasten unfold unify uninstall
    unite unleash unlock unpack unplug unravel unseal untie unveil unwrap unzip update upgrade
    uphold upload urge use utilize utter vacuum validate value vanish varnish vary vault veil
    venture verify view vine violate vision visit visualize voice volunteer vote vouch wage wager
    wagon wail wait wake walk wall wander want war warehouse warm warn warp wash waste watch water
    wave wax weaken wear weather weave web wed wedge weed weep weigh weight welcome weld wet whale
    wheel whine whip whisk whisper whistle widen wiggle wilt win wind wine wing wink winter wipe
    wire wish withdraw wither withhold withstand witness wobble wonder wood wool word work worry
    worship wound wrap wreck wrestle write wrong yank yard yawn yearn yell yield zip zone zoom
    """
)
"""Verbs in their base form."""

NOUNS = word_set(
    """
    access account act address advance age aggregate aid aim alert anchor answer approach arm ask
    attack audit author award back bag bait bake balance ban bank bar bark base basket bat bath
    battle beam bear beat bell bend benefit bid bike bill bin bite blame blast blaze blend blink
    block blog bloom blow board boast boat boil bolt bomb bond bone boo book boost boot border boss
    bottle bottom bounce bow bowl box brace brake branch brand bread break brew brick bridge
    broadcast brush bubble budget bug bulk bully bump bundle burn burst bus butcher butter button
    buy buzz cab cage cake call camp campaign candy canoe cap capture card care cash cast catch
    cause center chain chair chalk challenge change channel charge charm chart chase chat check
    cheer chill chip chop circle claim clamp clap clay click climb cloud club cluster coach coal
    coat code coin collapse color column comb combat combine comfort command comment compass
    conduct conflict contact contest contract contrast control cook copy cork corner cost count
    counter couple course court cover crab crack craft crash crawl cream crease creep crew crop
    cross crowd crown crush cry cube cure curl curse curtain curve cushion cut cycle damage dance
    dare dash date deal debate decay deck decline decrease deed default delay demand deposit design
    desire detail dice die diet dig dip discharge discipline dish disk dispatch display dispute
    dive divide dock doctor document dog dollar domain double doubt draft drag drain draw dream
    dress drift drill drink drip drive drop duck dump dust duty ear echo egg elbow email end
    engineer escape essay estimate exchange exercise exit experience experiment export extract eye
    face factor fade fail fall fan farm fashion father fault favor favour fax fear feature feed
    fence ferment fiddle fight figure file fill film filter finance finger finish fire fish fix
    flag flame flash flavor flight flip float flood flour flow flower fly foam focus fog fold foot
    force forecast forest forge fork form format foster frame freeze fruit fry fuel function fund
    gain gas gauge gaze gear gift glance glare glass glimpse glow glue grab grade grain grasp grass
    gravel graze grill grind grip ground group growl growth guarantee guard guess guide guitar gun
    hail halt hammer hand handle harbor harness harvest hat hatch haul head heat hedge helmet help
    hem herd hide highlight hike hint hire hiss hit hoe hole honey honor hook hop hope horn hose
    host house hug hum hunt hurry hurt ice impact import inch increase index influence ink input
    insult interview invite iron issue itch jail jam jest jet jewel jog join joke journey judge
    juice jump kettle key kick kill kiss knife knit knock knot label lace lack ladder lamp land
    laugh launch lead leaf leak leap leather lemon letter level lever leverage license lift light
    lime limit line link list litter load loan lock log look loop loss love lunch lure magnet mail
    manufacture map march mark market marvel mash mask master mat match mate measure medal melt
    menu mess metal microwave milk mind mine mint mirror miss mistake mix model monitor moon mop
    mother mount move mud mug muscle mushroom nail name need needle nest net night nod noise nose
    note notice nudge number oar object offer offset oil orbit order outline output oven pack
    package paddle page pain paint palm pan panel paper pardon park part partner pass patch patrol
    pattern pause pay peak pearl pedal pen pencil people pepper perch pet phone phrase piano pick
    picture pig pile pillow pilot pin pinch pipe pit pitch place plan plane plant plaster plate
    platform play plea pledge plot plow plug plum plunge pocket poem point poison pole polish pond
    pool port pose position post powder practice praise present press pressure price print prize
    probe process produce profile program progress project promise prompt prune pull pump purchase
    purge push puzzle quarter query quest question quote race raft rail rain raise rake rally range
    rank ransom rate ration rattle rave reach read reason rebel recall recipe record reform regard
    register regret relay release remark rent repair reply report request research reserve reset
    resort respect rest result resume retreat return reverse review reward rhyme ribbon rice ride
    ridge rim ring ripple rise risk river road roar roast robe rock rocket rod roll roof room root
    rope rose rot route row rub rule rumble run rush rust sack saddle sail salad salt salute sample
    sand sauce saw say scale scan scare scatter schedule school scissors scoop score scramble scrap
    scratch scream screen screw scrub sea seal search season seat sediment seed segment sense
    sequence set shade shadow shake shape share shed shelf shell shelter shield shift shine ship
    shiver shock shoe shoot shop shot shoulder shout shove shovel show shower shrug side sigh sign
    signal silence silver sin sink sip sit skate sketch ski skid skin skip slam slap slash slave
    sleep sleeve slice slide slip slope slump smell smile snack snap sneeze snore snow soap sob
    soil soldier sort sound soup space spark spawn speed spell spend spice spill spin spit splash
    split sponge spoon sport spot spray spread spring sprint sprout square squat squeeze stable
    stack staff stage stall stamp stand star stare start state station stay steal steam stem step
    stew stick stir stitch stock stomach stone stop store storm story stove strain strand strap
    straw stream stress stretch stride strike string strip stroke stroll structure struggle study
    stumble style subject sugar sum summer sun supply support surf surface surge surprise surrender
    survey suspect swallow swap swear sweat sweep swell swim swing swipe switch syrup table tackle
    tag tail tailor taint talk tank tap tape target taste tax taxi team tear temple tent test text
    thread throne throw thumb thunder ticket tide tie tile time tin tip tire title toast toe tongue
    tool tooth top toss total touch tour tow towel tower town toy trace track trade traffic trail
    train transfer transition transport trap trash travel tray tread treasure treat tree trick
    trigger trim trip triple triumph trot trouble truck trumpet trunk trust try tube tug tumble
    tune tunnel turn tutor tweet twin twist type umbrella update upgrade use vacuum value varnish
    vault veil venture view vine vision visit voice volunteer vote wage wagon wail wait wake walk
    wall war warehouse warp wash waste watch water wave wax wear weather weave web wedge weed
    weight weld whale wheel whine whip whisper whistle win wind wine wing wink winter wire wish
    witness wonder wood wool word work worry worship wound wrap wreck wrong yard yawn yield zip
    zone
    """
)
"""Those among them that are as often nouns."""


def base_form(word: str) -> str | None:
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
    """Whether a word is a base form, or made from one by a prefix or by a verb's suffix."""
    if word in BASES:
        return True
    for prefix in _PREFIXES:
        if word.startswith(prefix) and len(word) > len(prefix) + 2 and word[len(prefix) :] in BASES:
            return word not in _NO_VERBS
    if word.endswith(("ize", "ise", "ify", "yse")):
        return f"{word[:-2]}ze" in BASES or (
            word.endswith(("ize", "ify")) and word not in ("size", "prize")
        )
    return False


_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ied", "y"), ("ed", "e"), ("ed", ""))
"""Endings of verbs, and what each replaced."""
_PREFIXES = ("re", "pre", "un", "over", "under", "out", "mis", "dis", "de")
_NO_VERBS = word_set(
    """
    outside overall overhead overnight underground outback outcome outdoor outlaw reason recent
    real remote retail regain reform overweight overtime underage underdog outfit output request
    despite desert demand unit unlike until under dessert prestige rebel recess
    """
)
"""Words that only look as if a prefix made them."""
