"""The words of the grammar corpus, one line a lemma, the most frequent first in each list.

Nouns      English[/plural]   article German, genitive, plural   [classes of its own] [place]
           A genitive in -n or -en on a masculine marks a weak noun. A plural of `0` means that
           the noun has no plural here.
           The heading of a group gives its classes, which verbs and adjectives select by;
           `unowned` nouns take no possessive, nouns of which people have but `one` no plural with
           it. `in=in` is how one is there in either language; German goes there with the same
           preposition and the accusative, or with the one behind a `/` and the dative.
Verbs      English[/past[/participle]]   German infinitive [present, preterite, participle]
           `|` splits off a separable prefix; `ist_` marks the auxiliary sein; `sich_` a reflexive.
           Then the subject's classes and a colon (if not person), its complements and flags.
           Complement: case:classes, with a(ccusative) or d(ative), `for=auf+a:classes` with
           prepositions, one of which may be empty; `=hin` takes the German one that the place
           asks for, `by=mit` a vehicle, `to=nach` a city.
           Flags: p may happen at a place, m may be done in a manner, g may be liked,
           s state (no progressive, no adverbials), t English puts the dative last, with "to",
           u not of one's own will.
Adjectives English   German[:stem if it changes] [comparative]   classes, -classes excepted

An English word with several translations stands several times; its classes keep the
readings apart: no class that admits one admits another, so a verb, an adjective's noun or
another word of the sentence always decides.
"""

NOUNS = """
[person being]
man/men             der Mann, -es, Männer   unowned
woman/women         die Frau, -, -en   unowned
child/children      das Kind, -es, -er
teacher             der Lehrer, -s, -
boy                 der Junge, -n, -n   unowned
doctor              der Arzt, -es, Ärzte
girl                das Mädchen, -s, -   unowned
friend              der Freund, -es, -e
student             der Student, -en, -en
neighbour           der Nachbar, -n, -n
baker               der Bäcker, -s, -
farmer              der Bauer, -n, -n   unowned
guest               der Gast, -es, Gäste
pupil               der Schüler, -s, -
writer              der Schriftsteller, -s, -
artist              der Künstler, -s, -
gardener            der Gärtner, -s, -
king                der König, -s, -e   unowned
colleague           der Kollege, -n, -n
customer            der Kunde, -n, -n
cook                der Koch, -es, Köche
judge               der Richter, -s, -   unowned
lawyer              der Anwalt, -s, Anwälte
policeman/policemen  der Polizist, -en, -en   unowned
tourist             der Tourist, -en, -en   unowned
musician            der Musiker, -s, -
prince              der Prinz, -en, -en   unowned
hunter              der Jäger, -s, -   unowned
waiter              der Kellner, -s, -
painter             der Maler, -s, -
engineer            der Ingenieur, -s, -e
[person kin being]
mother              die Mutter, -, Mütter   one
father              der Vater, -s, Väter   one
sister              die Schwester, -, -n
brother             der Bruder, -s, Brüder
daughter            die Tochter, -, Töchter
son                 der Sohn, -es, Söhne
grandmother         die Großmutter, -, Großmütter   one
uncle               der Onkel, -s, -
aunt                die Tante, -, -n
grandfather         der Großvater, -s, Großväter   one
[she person being]
teacher             die Lehrerin, -, -nen
doctor              die Ärztin, -, -nen
student             die Studentin, -, -nen
neighbour           die Nachbarin, -, -nen
writer              die Schriftstellerin, -, -nen
artist              die Künstlerin, -, -nen
colleague           die Kollegin, -, -nen
judge               die Richterin, -, -nen
lawyer              die Anwältin, -, -nen
musician            die Musikerin, -, -nen
[animal pet being]
dog                 der Hund, -es, -e
cat                 die Katze, -, -n
[animal being]
horse               das Pferd, -es, -e
cow                 die Kuh, -, Kühe
mouse/mice          die Maus, -, Mäuse
pig                 das Schwein, -s, -e
bear                der Bär, -en, -en   unowned
goat                die Ziege, -, -n
monkey              der Affe, -n, -n   unowned
wolf/wolves         der Wolf, -es, Wölfe   unowned
rabbit              das Kaninchen, -s, -
donkey              der Esel, -s, -
[animal flyer being]
bird                der Vogel, -s, Vögel   unowned
duck                die Ente, -, -n
[insect flyer]
butterfly           der Schmetterling, -s, -e   unowned
bee                 die Biene, -, -n   unowned
[bat-animal flyer]
bat                 die Fledermaus, -, Fledermäuse
[bat-club]
bat                 der Schläger, -s, -
[dish fodder goods]
apple               der Apfel, -s, Äpfel
potato/potatoes     die Kartoffel, -, -n
carrot              die Karotte, -, -n
[dish goods]
cake                der Kuchen, -s, -
egg                 das Ei, -s, -er
soup                die Suppe, -, -n
pear                die Birne, -, -n
sausage             die Wurst, -, Würste
tomato/tomatoes     die Tomate, -, -n
cherry              die Kirsche, -, -n
[food fodder goods]
bread               das Brot, -es, 0
meat                das Fleisch, -es, 0
[food goods]
cheese              der Käse, -s, 0
rice                der Reis, -es, 0
fruit               das Obst, -es, 0
honey               der Honig, -s, 0
[feed fodder]
grass               das Gras, -es, 0
hay                 das Heu, -s, 0
[drink goods]
milk                die Milch, -, 0
water               das Wasser, -s, 0
coffee              der Kaffee, -s, 0
tea                 der Tee, -s, 0
wine                der Wein, -s, 0
beer                das Bier, -s, 0
[text lying thing goods]
book                das Buch, -es, Bücher
diary               das Tagebuch, -s, Tagebücher
[press lying thing goods]
newspaper           die Zeitung, -, -en
[text]
story               die Geschichte, -, -n
poem                das Gedicht, -s, -e
report              der Bericht, -s, -e
novel               der Roman, -s, -e   goods
message             die Nachricht, -, -en
[mail]
letter              der Brief, -es, -e
parcel              das Paket, -s, -e
invitation          die Einladung, -, -en
[sign]
letter              der Buchstabe, -ns, -n
word                das Wort, -es, Wörter
[lying thing goods]
knife/knives        das Messer, -s, -
spoon               der Löffel, -s, -
photo               das Foto, -s, -s
pencil              der Bleistift, -s, -e
blanket             die Decke, -, -n
fork                die Gabel, -, -n
umbrella            der Regenschirm, -s, -e
[lying thing clothes goods]
coat                der Mantel, -s, Mäntel
hat                 der Hut, -es, Hüte
shirt               das Hemd, -es, -en
jacket              die Jacke, -, -n
dress               das Kleid, -es, -er
[standing thing goods]
bottle              die Flasche, -, -n
glass               das Glas, -es, Gläser
lamp                die Lampe, -, -n
cup                 die Tasse, -, -n
vase                die Vase, -, -n
bucket              der Eimer, -s, -
pot                 der Topf, -es, Töpfe
[standing thing baggage goods]
basket              der Korb, -es, Körbe
suitcase            der Koffer, -s, -
[thing baggage goods]
bag                 die Tasche, -, -n
backpack            der Rucksack, -s, Rucksäcke
[thing goods]
picture             das Bild, -es, -er
clock               die Uhr, -, -en
chair               der Stuhl, -es, Stühle
piano               das Klavier, -s, -e
gift                das Geschenk, -s, -e
[ride thing goods]
car                 das Auto, -s, -s
bicycle             das Fahrrad, -s, Fahrräder
[travel]
train               der Zug, -es, Züge   unowned
bus                 der Bus, -ses, -se   unowned
ship                das Schiff, -es, -e   unowned
[lost]
key                 der Schlüssel, -s, -
money               das Geld, -es, 0
ring                der Ring, -s, -e
ticket              die Fahrkarte, -, -n
[button]
key                 die Taste, -, -n
button              der Knopf, -es, Knöpfe
[opening]
door                die Tür, -, -en
window              das Fenster, -s, -
gate                das Tor, -es, -e
[flame]
candle              die Kerze, -, -n
match               das Streichholz, -es, Streichhölzer
[contest]
match               das Spiel, -s, -e
prize               der Preis, -es, -e   unowned
race                das Rennen, -s, -   unowned
[garden-plant]
plant               die Pflanze, -, -n
flower              die Blume, -, -n
rose                die Rose, -, -n
[industry]
plant               die Fabrik, -, -en   in=in
factory             die Fabrik, -, -en   in=in
[task]
exercise            die Aufgabe, -, -n
question            die Frage, -, -n
problem             das Problem, -s, -e
[matter]
bed                 das Bett, -es, -en
stone               der Stein, -es, -e
[event]
exam                die Prüfung, -, -en
concert             das Konzert, -s, -e
lecture             der Vortrag, -s, Vorträge
wedding             die Hochzeit, -, -en
party               das Fest, -es, -e
journey             die Reise, -, -n
[top]
table               der Tisch, -es, -e   on=auf
floor               der Boden, -s, 0   on=auf
[case]
cupboard            der Schrank, -s, Schränke   in=in
drawer              die Schublade, -, -n   in=in
[place room inside]
kitchen             die Küche, -, -n   in=in
room                das Zimmer, -s, -   in=in
office              das Büro, -s, -s   in=in
[place building inside]
house               das Haus, -es, Häuser   in=in
[place building stop inside]
school              die Schule, -, -n   in=in
shop                der Laden, -s, Läden   in=in
church              die Kirche, -, -n   unowned   in=in
hotel               das Hotel, -s, -s   unowned   in=in
museum              das Museum, -s, Museen   unowned   in=in
library             die Bibliothek, -, -en   unowned   in=in
restaurant          das Restaurant, -s, -s   in=in
hospital            das Krankenhaus, -es, Krankenhäuser   unowned   in=in
[place outdoors]
garden              der Garten, -s, Gärten   inside   in=in
park                der Park, -s, -s   unowned   in=in
forest              der Wald, -es, Wälder   unowned inside   in=in
market              der Markt, -es, Märkte   unowned stop   at=auf
station             der Bahnhof, -s, Bahnhöfe   unowned stop   at=an/zu
beach               der Strand, -es, Strände   unowned stop   on=an
bridge              die Brücke, -, -n   unowned   on=auf/zu
[area outdoors]
village             das Dorf, -es, Dörfer   in=in
city                die Stadt, -, Städte   stop   in=in
meadow              die Wiese, -, -n   unowned   in=auf
mountain            der Berg, -es, -e   unowned   on=auf
island              die Insel, -, -n   unowned   on=auf
[shore]
lake                der See, -s, -n   unowned
bank                das Ufer, -s, -
river               der Fluss, -es, Flüsse   unowned
[finance]
bank                die Bank, -, -en
[weather]
rain                der Regen, -s, 0
storm               der Sturm, -s, 0
noise               der Lärm, -s, 0
heat                die Hitze, -, 0
snow                der Schnee, -s, 0
"""

VERBS = """
see/saw/seen         sehen sieht sah gesehen                 being : a:being,thing  -s
buy/bought           kaufen                                  a:goods  -pg
read/read            lesen liest las gelesen                 a:text,press  -pmg
know/knew/known      kennen kennt kannte gekannt             a:person,text,area  -s
eat/ate/eaten        essen isst aß gegessen                  a:dish,food  -pmg
eat/ate/eaten        fressen frisst fraß gefressen           animal : a:fodder  -pm
find/found           finden findet fand gefunden             a:thing,lost,animal  -pu
help                 helfen hilft half geholfen              d:person  -pg
sleep/slept          schlafen schläft schlief geschlafen     being :  -pg
work                 arbeiten  -pmg
open                 auf|machen                              a:opening  -m
visit                besuchen                                a:person,place,area  -g
drink/drank/drunk    trinken trinkt trank getrunken          a:drink  -pmg
give/gave/given      geben gibt gab gegeben                  d:person a:thing,dish,lost
sell/sold            verkaufen                               a:thing,dish,food,ride  -pg
wait                 warten                                  for=auf+a:person,travel  -p
call                 an|rufen ruft rief angerufen            a:person  -g
come/came/come       kommen kommt kam ist_gekommen           to=hin+a:place
write/wrote/written  schreiben schreibt schrieb geschrieben  a:text  -pmg
close                zu|machen                               a:opening  -m
lose/lost            verlieren verliert verlor verloren      a:lost,thing  -pu
look_for             suchen                                  a:lost,thing,animal  -p
go/went/gone         gehen geht ging ist_gegangen            to=hin+a:place  -m
go/went/gone         fahren fährt fuhr ist_gefahren          by=mit to=hin+a:stop
go/went/gone         fahren fährt fuhr ist_gefahren          by=mit to=nach
bring/brought        bringen bringt brachte gebracht         d:person a:dish,drink,text,mail,lying
show/showed/shown    zeigen                                  d:person a:thing,text,place
play                 spielen                                 person pet :  -pmg
love                 lieben                                  a:person,animal,area  -s
thank                danken                                  d:person
put/put              stellen                                 a:standing on=auf+a:top  -m
put/put              legen                                   a:lying on=auf+a:top  -m
pick_up              ab|holen                                a:person,mail  -g
invite               ein|laden lädt lud eingeladen           a:person  -g
cook                 kochen                                  a:soup,rice  -pmg
send/sent            schicken                                d:person a:mail,lying
answer               antworten                               d:person
ask                  fragen                                  a:person
laugh                lachen  -pg
carry                tragen trägt trug getragen              a:baggage into=in+a:room,building  -m
talk                 sprechen spricht sprach gesprochen      about=über+a:text,event,person  -pg
think/thought        denken denkt dachte gedacht             of=an+a:person,event
leave/left           verlassen verlässt verließ verlassen    a:building,area,outdoors  -m
leave/left           ab|fahren fährt fuhr ist_abgefahren     travel :
arrive               an|kommen kommt kam ist_angekommen      travel person :
get_up/got/got       auf|stehen steht stand ist_aufgestanden  -mg
listen               zu|hören                                to=+d:person  -mg
look_at              an|sehen sieht sah angesehen            a:thing,building,animal  -mg
bark                 bellen bellt bellte gebellt             dog :  -p
run/ran/run          laufen läuft lief ist_gelaufen          being : into=in+a:inside  -m
fly/flew/flown       fliegen fliegt flog ist_geflogen        flyer : over=über+a:outdoors  -m
explain              erklären                                d:person a:task  -tm
fall/fell/fallen     fallen fällt fiel ist_gefallen          lying standing : on=auf+a:top  -u
follow               folgen folgt folgte ist_gefolgt         being : d:person,animal  -m
clean_up             auf|räumen                              a:room  -m
put_on/put/put       an|ziehen zieht zog angezogen           a:clothes  -m
receive              bekommen bekommt bekam bekommen         a:mail  -u
look_forward         sich_freuen                             to=auf+a:event
remember             sich_erinnern                           =an+a:person,event
rest                 sich_aus|ruhen  -pg
hurry                sich_beeilen
win/won              gewinnen gewinnt gewann gewonnen        a:contest
light/lit            an|zünden                               a:flame  -m
press                drücken                                 a:button  -m
water                gießen gießt goss gegossen              a:garden-plant  -mg
work                 arbeiten                                in=in+d:industry  -g
learn                lernen                                  pupil child boy girl student : a:sign
pronounce            aus|sprechen spricht sprach ausgesprochen  a:sign  -m
fish                 angeln                                  at=an+d:shore  -g
deposit              ein|zahlen                              a:money at=bei+d:finance
swing/swung          schwingen schwingt schwang geschwungen  a:bat-club  -m
belong               gehören                                 thing ride : to=+d:person  -s
repair               reparieren                              a:ride,clock,chair  -pmg
paint                malen                                   a:picture,animal,building  -mg
tell/told            erzählen                                d:person a:story
solve                lösen                                   a:problem,exercise  -m
prepare              vor|bereiten                            a:event  -m
take_part/took/taken  teil|nehmen nimmt nahm teilgenommen     in=an+d:race,party
cut/cut              schneiden schneidet schnitt geschnitten  a:bread,meat,cheese,cake,sausage  -m
dream                träumen                                 of=von+d:person,event,area  -u
trust                vertrauen                               d:person  -s
wash                 waschen wäscht wusch gewaschen          a:clothes,cup,glass  -pm
steal/stole/stolen   stehlen stiehlt stahl gestohlen         a:lost,ride,picture  -p
"""

ADJECTIVES = """
old          alt älter                   being thing ride building place area text -boy -girl -child
young        jung jünger                 person animal -boy -girl -child -grandmother -grandfather
new          neu neuer                   thing ride building text place travel
small        klein kleiner               being thing ride building place dish area outdoors industry
big          groß größer                 animal thing ride place dish area outdoors industry
friendly     freundlich freundlicher     person
beautiful    schön schöner               thing place area text garden-plant concert party journey
tired        müde                        person animal
expensive    teuer:teur teurer           thing ride drink ring
long         lang länger                 text concert lecture journey party exam bridge beach
interesting  interessant interessanter   text event museum city task sign
red          rot                         clothes standing garden-plant ride
clever       klug klüger                 person animal
fresh        frisch                      food dish drink fodder
hungry       hungrig                     person animal
sad          traurig                     person story novel poem
rich         reich reicher               person
poor         arm ärmer                   person
famous       berühmt berühmter           person museum church book story poem novel area
quiet        ruhig                       place area outdoors room
cold         kalt kälter                 dish drink room
warm         warm wärmer                 dish drink room clothes
cheap        billig billiger             thing ride drink
strong       stark stärker               person animal
short        kurz kürzer                 text concert lecture journey exam
black        schwarz                     clothes pet animal ride baggage
white        weiß                        clothes animal flower rose
green        grün                        clothes vase meadow bucket
light        leicht leichter             baggage bicycle
light        hell heller                 room
heavy        schwer schwerer             baggage piano
heavy        stark                       rain storm snow
hard         hart                        matter
hard         schwer                      task exam
dark         dunkel:dunkl dunkler        room forest
empty        leer                        standing baggage case
happy        glücklich glücklicher       person
sick         krank                       person animal
polite       höflich höflicher           person
brave        mutig mutiger               person animal
dangerous    gefährlich gefährlicher     animal journey
sweet        süß                         cake cherry apple pear tea honey
wide         breit breiter               shore bridge door gate
"""

# English, German; the heading says where they stand and with which tense they go
ADVERBS = """
[time past]
yesterday          gestern
last_week          letzte_Woche
last_Sunday        letzten_Sonntag
three_days_ago     vor_drei_Tagen
[time present]
today              heute
now                jetzt
every_day          jeden_Tag
every_morning      jeden_Morgen
in_the_evening     am_Abend
on_Sundays         sonntags
[time future]
tomorrow           morgen
soon               bald
next_week          nächste_Woche
on_Monday          am_Montag
[frequency]
often              oft
always             immer
sometimes          manchmal
never              nie
rarely             selten
[perfect]
already            schon
just               gerade
[manner]
slowly             langsam
quickly            schnell
quietly            leise
carefully          vorsichtig
[vehicle]
train              dem_Zug
bus                dem_Bus
car                dem_Auto
bicycle            dem_Fahrrad
[city]
Berlin             Berlin
Hamburg            Hamburg
Munich             München
Vienna             Wien
"""

# of one noun's adjectives at most one from a line
OPPOSITES = """
old young new
big small
tired strong
rich poor
cold warm fresh
long short
light heavy
sad happy
cheap expensive
hungry sick tired brave
black white green red
"""

NAMES = "Anna Peter Maria Paul Julia Karl Lena Tim Emma Leon Laura David"  # women, men in turn
SURNAMES = "Müller Schmidt Weber Becker Wagner Hoffmann"

# verbs that govern a clause: [that] dass, [whether] ob, [to] a zu-infinitive
GOVERNING = """
[that]
say/said                sagen
think/thought           glauben
know/knew/known         wissen weiß wusste gewusst  -s
hope                    hoffen  -s
hear/heard              hören  -s
notice                  merken  -s
[whether]
ask                     fragen
know/knew/known         wissen weiß wusste gewusst  -s
[to]
try                     versuchen
forget/forgot/forgotten  vergessen vergisst vergaß vergessen
begin/began/begun       beginnen beginnt begann begonnen
decide                  beschließen beschließt beschloss beschlossen
plan                    planen
hope                    hoffen
"""

# English, German, the time of the clauses that it joins; `earlier` wants a perfect
CONJUNCTIONS = """
[any]
because            weil
although           obwohl
[present]
when               wenn
if                 wenn
[past]
when               als
[action]
before             bevor
while              während
as_soon_as         sobald
[earlier]
after              nachdem
"""
