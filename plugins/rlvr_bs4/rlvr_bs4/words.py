"""Vocabulary of the generated pages."""
# ruff: noqa: RUF001  # letters of other scripts are meant

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES = _split("""
amber ancient bold brave bright brisk broad calm careful civic clear clever coastal compact cool
crisp curious daily deep direct distant early eastern elegant even exact fair faithful fine firm
fresh gentle glossy golden grand green handy hidden honest humble inner ivory jolly keen kind large
late lasting level light lively local loyal lucky lunar mellow merry mild minor misty modern modest
narrow neat noble northern novel olive open orderly outer pale patient plain polished prime proud
quick quiet rapid rare ready regal remote rich robust round royal rural rustic scarlet serene sharp
silent silver simple sleek slim smooth snowy soft solid southern sparse spare stable steady stern
still stony sturdy subtle sunny swift tall tidy tiny urban vivid warm western whole wide wild wise
""")
NOUNS = _split("""
anchor apron arch atlas badge bakery basin beacon bench berry blanket boat bottle bracket branch
breeze brick bridge bucket button cabin cable canal candle canyon carpet castle cedar cellar chapel
circle cliff clock cloud coast comet compass copper corner cottage cradle crane creek crystal cup
curtain cushion dawn desk dome drum dune eagle easel ember engine estuary fabric falcon feather
fern ferry field flame flute forest fountain frame garden garnet glacier glove grove gull hammer
harbor harvest heron hill hinge horizon island ivy jacket jar jewel journal juniper kettle kite
ladder lagoon lamp lantern lark laurel ledger lever lily linen locket loom maple marble meadow
mirror mitten moss mountain needle nest notebook oak oar orchard otter paddle panel paper parcel
path pebble pencil pepper petal pier pillow pine plank plaza pond poplar prism quarry quill quilt
raven reef ribbon ridge river robin rope rudder saddle sail satchel shelf shell shore spoon spring
spruce star stone stream summit table teapot temple thistle thread tiger torch tower trail tulip
tunnel valley velvet vessel village violet walnut water wheel willow window winter wool wren yarn
""")
VERBS = _split("""
opens follows carries crosses reaches covers joins guards holds lifts marks meets moves passes
rests returns shapes shares shows sounds stands starts stays supports takes turns visits warms
watches welcomes
""")
FIRST_NAMES = _split("""
Ada Alan Amara Anton Bea Boris Carla Cyrus Dana Dmitri Edith Elias Farah Felix Gita Goran Hana
Hugo Ines Ivan Jana Jonas Kira Kofi Lena Luca Mara Milo Nadia Nils Olga Omar Petra Quinn Rosa Rui
Sana Sven Tara Tomas Uma Viktor Wanda Xenia Yara Yusuf Zita Zoran
""")
LAST_NAMES = _split("""
Abara Arden Baker Bauer Castillo Chen Dahl Duarte Egan Eriksen Falk Ferreira Gallo Grant Haas Holt
Ibrahim Ito Jensen Jones Kaya Keller Larsen Lopez Marsh Meyer Nakano Novak Okafor Olsen Patel
Quist Ramos Reyes Sato Singh Tanaka Thorne Ueda Vance Vogel Walsh Weber Yilmaz Young Zeman
""")
CITIES = _split("""
Aarhus Bergen Bilbao Bordeaux Braga Bristol Cork Dresden Ghent Graz Krakow Leiden Lille Linz
Lugano Malmo Nantes Oporto Ostrava Parma Pilsen Riga Rouen Salzburg Split Tampere Tartu Trieste
Turku Utrecht Varna Vigo Wexford Zadar
""")
GREEK = _split("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda sigma omega")
COLOURS = _split("black blue brown gray green orange pink purple red teal white yellow")
GARMENT_SIZES = ("XS", "S", "M", "L", "XL", "XXL")
GOODS = _split("""
backpack blender bookcase camera chair charger coat desk drill fan grill guitar headset heater
helmet jacket kettle keyboard lamp laptop mattress microscope monitor mower mug oven piano printer
projector radio razor router scarf scooter sofa speaker stapler stroller stove suitcase tablet tent
toaster tripod turntable vase watch
""")
EMOJI = tuple(
    "🌻🌵🍀🍁🍄🍇🍉🍊🍋🍒🍓🍕🍩🍪🎈🎉🎧🎨🎯🎲🎸🎺🏀🏆🏔🐙🐝🐠🐢🐧🐬🐳🐼🌈🌊🌙🚀🚂🚲🔑🔔🔭🧩🧭"
)
"""Emoji of one code point each."""

LANGUAGES: dict[str, tuple[str, ...]] = {
    "zh": _split("""
        欢迎 今天 特价 新鲜 水果 送货 免费 价格 请 联系 我们 图书 花园 山脉 河流 音乐 晚上
        早晨 朋友 城市
    """),
    "ar": _split("""
        مرحبا اليوم عرض جديد فواكه طازجة توصيل مجاني سعر كتاب حديقة جبل نهر موسيقى مساء
        صباح صديق مدينة سوق بيت
    """),
    "ja": _split("""
        ようこそ 今日 特別 新鮮 果物 配達 無料 価格 連絡 本 庭 山 川 音楽 夜 朝 友達 町
        市場 家
    """),
    "ko": _split("""
        환영 오늘 특가 신선한 과일 배송 무료 가격 연락 책 정원 산 강 음악 저녁 아침 친구
        도시 시장 집
    """),
    "ru": _split("""
        добро сегодня скидка свежие фрукты доставка бесплатно цена книга сад гора река
        музыка вечер утро друг город рынок дом свет
    """),
    "de": _split("""
        Grüße heute Angebot frisches Obst Lieferung kostenlos Preis Buch Gärten Berge
        Flüsse Musik Abend früh Freund Stadt Märkte Häuser Licht
    """),
    "es": _split("""
        mañana hoy oferta fresca fruta envío gratis precio libro jardín montaña río música
        tarde niño amigo ciudad mercado casa luz
    """),
    "fr": _split("""
        été aujourd'hui offre fraîche fruits livraison gratuite prix livre forêt montagne
        rivière musique soirée matinée ami cité marché maison lumière
    """),
    "hi": _split("""
        स्वागत आज प्रस्ताव ताज़ा फल वितरण मुफ़्त मूल्य पुस्तक बगीचा पहाड़ नदी संगीत शाम सुबह मित्र
        शहर बाज़ार घर प्रकाश
    """),
    "he": _split("""
        שלום היום מבצע טרי פירות משלוח חינם מחיר ספר גן הר נהר מוזיקה ערב בוקר חבר עיר שוק
        בית אור
    """),
}
RTL = ("ar", "he")
