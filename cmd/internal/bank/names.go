package bank

const pensionFund = "State Pension Fund"

var firstNames = []string{
	"Adam", "Agata", "Aisha", "Albert", "Alice", "Amelie", "Amir", "Ana", "Andrei", "Anke", "Anton", "Arjun", "Astrid", "Beatriz", "Ben", "Birgit",
	"Bruno", "Camille", "Carla", "Carlos", "Cem", "Chiara", "Clara", "Daniel", "David", "Diana", "Dimitri", "Elena", "Elif", "Emil", "Emma", "Eric",
	"Esther", "Eva", "Fatima", "Felix", "Fiona", "Florian", "Francesca", "Frida", "Gabriel", "Georg", "Greta", "Hana", "Hannah", "Hassan", "Helena", "Henrik",
	"Hugo", "Ines", "Ingrid", "Irina", "Isabel", "Ivan", "Jakob", "Jana", "Jasmin", "Johan", "Jonas", "Jorge", "Judith", "Julia", "Kamil", "Karin",
	"Katarina", "Kenji", "Kofi", "Laila", "Lara", "Laszlo", "Laura", "Lea", "Leon", "Linh", "Lucia", "Luis", "Lukas", "Magda", "Malik", "Marco",
	"Maria", "Marta", "Martin", "Mateo", "Maya", "Mehmet", "Mia", "Michael", "Milan", "Mina", "Nadia", "Nils", "Nina", "Noah", "Nora", "Olga",
	"Oliver", "Omar", "Oskar", "Paula", "Pavel", "Pedro", "Petra", "Philipp", "Priya", "Rafael", "Rosa", "Ruth", "Samir", "Samuel", "Sara", "Sofia",
	"Stefan", "Susanne", "Sven", "Tamara", "Tereza", "Theo", "Thomas", "Tomas", "Tracy", "Ulrike", "Valentin", "Vera", "Viktor", "Wanda", "Yasmin", "Zofia",
}

var lastNames = []string{
	"Abdi", "Ahmed", "Albrecht", "Almeida", "Andersen", "Baker", "Balogh", "Bauer", "Becker", "Berg", "Bianchi", "Blanc", "Bos", "Brandt", "Brennan", "Carvalho",
	"Castillo", "Christensen", "Clarke", "Costa", "Csonka", "Dahl", "De Vries", "Delgado", "Demir", "Diaz", "Dubois", "Dvorak", "Eriksson", "Esposito", "Farkas", "Fernandez",
	"Ferrari", "Fischer", "Fontaine", "Fournier", "Frank", "Garcia", "Garnier", "Gomez", "Gruber", "Haas", "Hansen", "Hartmann", "Hoffmann", "Horvath", "Huber", "Hughes",
	"Ibrahim", "Ivanov", "Jansen", "Jensen", "Johansson", "Kaiser", "Kaya", "Keller", "Khan", "Klein", "Koch", "Kovac", "Kowalski", "Kraus", "Kumar", "Lambert",
	"Lang", "Larsen", "Lefebvre", "Lehmann", "Lindgren", "Lopez", "Lorenz", "Maier", "Marek", "Marino", "Martinez", "Mayer", "Mensah", "Meyer", "Moreau", "Moretti",
	"Morgan", "Mueller", "Murphy", "Nagy", "Navarro", "Neumann", "Nguyen", "Nielsen", "Novak", "Nowak", "O'Brien", "Okafor", "Olsen", "Ortega", "Ozturk", "Papadakis",
	"Park", "Patel", "Pereira", "Petrov", "Pham", "Popescu", "Quinn", "Ramirez", "Reyes", "Ricci", "Richter", "Rinaldi", "Rossi", "Rousseau", "Ruiz", "Sahin",
	"Santos", "Sato", "Schmidt", "Schneider", "Schulz", "Silva", "Singh", "Sokolov", "Sorensen", "Svoboda", "Szabo", "Tanaka", "Toth", "Urban", "Vargas", "Vogel",
	"Wagner", "Walsh", "Weber", "Wilson", "Winter", "Wolf", "Wouters", "Yilmaz", "Zeman", "Ziegler", "Zimmermann", "Zuniga",
}

var streets = []string{
	"Abbey Road", "Bahnhofstrasse", "Calle Mayor", "Canal Street", "Castle Hill", "Cedar Lane", "Chestnut Avenue", "Church Street", "Gartenweg", "Grote Markt",
	"Harbour Street", "Hauptstrasse", "High Street", "Lindenallee", "Market Square", "Mill Lane", "Mozartgasse", "Museumstraat", "Orchard Road", "Park Avenue",
	"Ringstrasse", "River Walk", "Rua Augusta", "Rue de la Gare", "Rue Pasteur", "School Lane", "Station Road", "Storgatan", "Via Garibaldi", "Via Roma",
}

var cities = []string{
	"Amsterdam", "Antwerp", "Athens", "Augsburg", "Barcelona", "Basel", "Bergen", "Berlin", "Bologna", "Bordeaux", "Bratislava", "Bremen", "Brno", "Brussels", "Budapest", "Cork",
	"Dresden", "Dublin", "Eindhoven", "Florence", "Gdansk", "Geneva", "Ghent", "Gothenburg", "Graz", "Hamburg", "Helsinki", "Innsbruck", "Kaunas", "Krakow", "Leipzig", "Lille",
	"Linz", "Lisbon", "Ljubljana", "Luxembourg", "Lyon", "Madrid", "Malmo", "Marseille", "Milan", "Munich", "Nantes", "Naples", "Oslo", "Ostrava", "Porto", "Prague",
	"Riga", "Rotterdam", "Salzburg", "Seville", "Sofia", "Tallinn", "Turin", "Utrecht", "Valencia", "Vienna", "Vilnius", "Warsaw", "Zagreb", "Zurich",
}

var employers = []string{
	"Alpenblick Hotels", "Arbor Furniture", "Baltic Shipping", "Bellweather Insurance", "Brightwater Engineering", "Carpathia Foods", "City Council", "Delta Logistics", "Eastgate Hospital", "Fairfield Schools",
	"Granite Construction", "Green Valley Farms", "Harbour Steel", "Helvetic Precision", "Ironbridge Motors", "Kestrel Aviation", "Lakeside Clinic", "Linden Pharma", "Meridian Software", "Mistral Energy",
	"National Railways", "Northern Paper Mills", "Oakwood Retail", "Orion Electronics", "Pannonia Textiles", "Quayside Consulting", "Regional Post", "Rosewood Care Homes", "Silverline Buses", "State University",
	"Summit Sports", "Tidewater Chemicals", "Union Breweries", "Vantage Media", "Waldheim Timber", "Westhaven Bakery",
}

var landlords = []string{
	"Altstadt Homes", "Beech Tree Lettings", "Brick & Stone Estates", "City Housing Trust", "Cooperative Housing Society", "Corner House Rentals", "Hillside Properties", "Immo Nord", "Kaiser Property Management", "Riverside Apartments", "Sunrise Lettings", "Tenants' Association West",
}

var utilities = []string{"City Power & Water", "Clearwater Utilities", "District Heating East", "Greenline Energy", "Nordstrom Electric", "Sunfield Power", "United Gas"}

var telcos = []string{"Bluewave Mobile", "Fibernet", "Hello Telecom", "Polar Broadband", "Tango Mobile"}

var insurers = []string{"Anchor Mutual", "Beacon Life", "Guardian Health Fund", "Harbour Assurance", "Shield Car Insurance"}

// shops are the shops where cards are used, with the usual amounts in euro.
var shops = []struct {
	name      string
	low, high int
}{
	{"Fresh Corner Market", 12, 95}, {"Daily Basket", 8, 120}, {"Daily Basket", 8, 120}, {"Hofladen", 15, 90}, {"Maxi Grocer", 20, 160}, {"Maxi Grocer", 20, 160},
	{"Petrol 24", 35, 98}, {"Rapid Fuel", 40, 105}, {"Osteria Luna", 22, 110}, {"Cafe Central", 4, 28}, {"Golden Wok", 12, 60}, {"Burger Yard", 9, 35},
	{"Cornerstone Pharmacy", 5, 70}, {"Booktower", 9, 65}, {"Webmarket", 10, 240}, {"Webmarket", 10, 240}, {"Sneaker Lab", 45, 180}, {"Moda Donna", 25, 190},
	{"Build & Garden", 12, 260}, {"Electro Planet", 19, 690}, {"City Transit", 3, 75}, {"Regional Trains", 8, 120}, {"Cinema Palace", 10, 48}, {"Fit Club", 29, 79},
	{"Pet Paradise", 8, 85}, {"Optic House", 40, 320}, {"Streambox", 9, 18}, {"Air Connect", 70, 520},
}

var purposes = []purpose{
	{"car", 5000, 32000, "Ironbridge Motors"}, {"car", 5000, 32000, "Autohaus Central"}, {"home improvement", 4000, 45000, "Granite Construction"},
	{"kitchen", 4000, 18000, "Arbor Furniture"}, {"furniture", 1500, 9000, "Arbor Furniture"}, {"solar panels", 7000, 28000, "Sunfield Power"},
	{"debt consolidation", 3000, 30000, "Union Credit"}, {"wedding", 3000, 20000, "Alpenblick Hotels"}, {"education", 2000, 16000, "State University"},
	{"medical treatment", 1500, 15000, "Lakeside Clinic"}, {"heating system", 6000, 24000, "District Heating East"}, {"electric bicycle", 1500, 6000, "Summit Sports"},
}
