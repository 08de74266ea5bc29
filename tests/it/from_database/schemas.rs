//! Databases of other programs, in SQL that both engines read.

/// Like the Chinook sample database.
pub const MUSIC: &str = r#"
CREATE TABLE "Employee" (
  "EmployeeId" INTEGER NOT NULL PRIMARY KEY, "LastName" VARCHAR(20) NOT NULL, "ReportsTo" INTEGER,
  FOREIGN KEY ("ReportsTo") REFERENCES "Employee" ("EmployeeId")
);
CREATE TABLE "Customer" (
  "CustomerId" INTEGER NOT NULL PRIMARY KEY, "FirstName" VARCHAR(40) NOT NULL, "LastName" VARCHAR(20) NOT NULL,
  "Email" VARCHAR(60) NOT NULL UNIQUE, "SupportRepId" INTEGER REFERENCES "Employee" ("EmployeeId"),
  "Active" BOOLEAN NOT NULL DEFAULT TRUE
);
CREATE TABLE "Artist" ("ArtistId" INTEGER NOT NULL PRIMARY KEY, "Name" VARCHAR(120));
CREATE TABLE "Album" (
  "AlbumId" INTEGER NOT NULL PRIMARY KEY, "Title" VARCHAR(160) NOT NULL, "ArtistId" INTEGER NOT NULL REFERENCES "Artist" ("ArtistId")
);
CREATE TABLE "Track" (
  "TrackId" INTEGER NOT NULL PRIMARY KEY, "Name" VARCHAR(200) NOT NULL, "AlbumId" INTEGER REFERENCES "Album" ("AlbumId"),
  "Composer" VARCHAR(220), "Milliseconds" INTEGER NOT NULL, "UnitPrice" NUMERIC(10,2) NOT NULL
);
CREATE INDEX "IFK_TrackAlbumId" ON "Track" ("AlbumId");
CREATE TABLE "Playlist" ("PlaylistId" INTEGER NOT NULL PRIMARY KEY, "Name" VARCHAR(120));
CREATE TABLE "PlaylistTrack" (
  "PlaylistId" INTEGER NOT NULL REFERENCES "Playlist" ("PlaylistId"), "TrackId" INTEGER NOT NULL REFERENCES "Track" ("TrackId"),
  PRIMARY KEY ("PlaylistId", "TrackId")
);
CREATE TABLE "Invoice" (
  "InvoiceId" INTEGER NOT NULL PRIMARY KEY, "CustomerId" INTEGER NOT NULL REFERENCES "Customer" ("CustomerId"),
  "InvoiceDate" TIMESTAMP NOT NULL, "Total" NUMERIC(10,2) NOT NULL
);
CREATE TABLE "InvoiceLine" (
  "InvoiceLineId" INTEGER NOT NULL PRIMARY KEY,
  "InvoiceId" INTEGER NOT NULL REFERENCES "Invoice" ("InvoiceId") ON DELETE CASCADE,
  "TrackId" INTEGER NOT NULL REFERENCES "Track" ("TrackId"), "Quantity" INTEGER NOT NULL DEFAULT 1 CHECK ("Quantity" > 0)
);
INSERT INTO "Employee" VALUES (3, 'Peacock', NULL), (1, 'Adams', 3), (2, 'Edwards', 1);
INSERT INTO "Customer" VALUES (1, '', 'Gonçalves
Luís', 'luis@example.com', 3, TRUE), (2, 'Leonie', 'Köhler', 'leonie@example.com', NULL, FALSE);
INSERT INTO "Artist" VALUES (1, 'AC/DC'), (2, NULL);
INSERT INTO "Album" VALUES (1, 'For Those About To Rock', 1), (2, 'Balls to the Wall', 2);
INSERT INTO "Track" VALUES (1, 'For Those About To Rock', 1, 'Young', 343719, 0.99), (2, 'Balls, "to" the Wall', 2, NULL, 342562, 0.99);
INSERT INTO "Playlist" VALUES (1, 'Music'), (2, 'Movies');
INSERT INTO "PlaylistTrack" VALUES (1, 1), (1, 2), (2, 1);
INSERT INTO "Invoice" VALUES (1, 1, '2009-01-01 10:30:00', 1.98);
INSERT INTO "InvoiceLine" VALUES (1, 1, 1, 1), (2, 1, 2, 3)
"#;

/// Like the Northwind sample database: keys that are texts, keys of several columns, lists in checks, a view.
pub const SHOP: &str = r#"
CREATE TABLE customers (customer_id CHAR(5) NOT NULL PRIMARY KEY, company_name VARCHAR(40) NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE categories (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(15) NOT NULL UNIQUE, picture BINARY);
CREATE TABLE products (
  id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, category_id INTEGER REFERENCES categories (id),
  unit_price NUMERIC(10,2) NOT NULL DEFAULT 0 CHECK (unit_price >= 0), discontinued BOOLEAN NOT NULL,
  kind VARCHAR(10) NOT NULL CHECK (kind IN ('food', 'drink')), stock INTEGER CHECK (stock BETWEEN 0 AND 1000),
  CHECK (name <> kind)
);
CREATE INDEX products_by_name ON products (name);
CREATE UNIQUE INDEX products_live ON products (name) WHERE NOT discontinued;
CREATE TABLE orders (
  id INTEGER NOT NULL PRIMARY KEY, customer_id CHAR(5) NOT NULL REFERENCES customers (customer_id), freight NUMERIC
);
CREATE TABLE order_details (
  order_id INTEGER NOT NULL REFERENCES orders (id) ON DELETE CASCADE, product_id INTEGER NOT NULL REFERENCES products (id),
  quantity INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (order_id, product_id)
);
CREATE TABLE shipments (
  id INTEGER NOT NULL PRIMARY KEY, order_id INTEGER, product_id INTEGER, took INTERVAL,
  FOREIGN KEY (order_id, product_id) REFERENCES order_details (order_id, product_id)
);
CREATE TABLE returns (
  id INTEGER NOT NULL PRIMARY KEY, order_id INTEGER REFERENCES orders (id) ON DELETE SET NULL,
  category_id INTEGER NOT NULL DEFAULT 1 REFERENCES categories (id) ON DELETE SET DEFAULT,
  clerk_id INTEGER NOT NULL REFERENCES categories (id) ON DELETE SET NULL, reason VARCHAR(10) CHECK (reason IS NOT NULL)
);
CREATE TABLE log (message TEXT);
CREATE VIEW big_orders AS SELECT * FROM orders;
INSERT INTO customers (customer_id, company_name) VALUES ('ALFKI', 'Alfreds'), ('ANATR', 'Ana');
INSERT INTO categories (id, name) VALUES (1, 'Beverages');
INSERT INTO products VALUES (1, 'Chai', NULL, 18, FALSE, 'drink', 39);
INSERT INTO orders VALUES (1, 'ALFKI', 32.38);
INSERT INTO order_details VALUES (1, 1, 12);
INSERT INTO shipments VALUES (1, 1, 1, NULL);
INSERT INTO returns VALUES (1, 1, 1, 1, 'broken');
INSERT INTO log VALUES ('started'), (NULL)
"#;

/// Names of which a model has none, names that the server uses, and names that try to be something else.
pub const HOSTILE: &str = r#"
CREATE TABLE "клиенты" ("имя" TEXT, "имя 2" TEXT);
CREATE TABLE "order" ("id" INTEGER NOT NULL PRIMARY KEY, "select" TEXT, "version" TEXT, "created_at" TEXT, "Created At" TEXT);
CREATE TABLE "orders" ("id" INTEGER NOT NULL PRIMARY KEY, "order_id" INTEGER NOT NULL REFERENCES "order" ("id") ON DELETE CASCADE, "order" TEXT);
CREATE TABLE "a
[roles.anyone]
""*"" = ""*""" ("x
y = 1" TEXT, "z""; DROP TABLE ""order""; --" TEXT DEFAULT 'a''b" \ c', "tab	" TEXT);
CREATE TABLE "2 3" ("4" INTEGER, "' \ """ TEXT);
CREATE TABLE "t_with_a_name_that_is_longer_than_forty_characters_1" ("c_with_a_name_that_is_longer_than_forty_characters_1" TEXT, "c_with_a_name_that_is_longer_than_forty_characters_2" TEXT);
CREATE TABLE "t_with_a_name_that_is_longer_than_forty_characters_2" ("id" TEXT NOT NULL PRIMARY KEY);
CREATE TABLE "page" ("id" INTEGER NOT NULL PRIMARY KEY);
CREATE TABLE "Empty" ("only" INTEGER NOT NULL PRIMARY KEY)
"#;

pub const POSTGRES_TYPES: &str = r#"
CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
CREATE DOMAIN posint AS integer NOT NULL CHECK (VALUE > 0);
CREATE DOMAIN moment AS timestamptz;
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE things (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), feeling mood NOT NULL DEFAULT 'sad', feelings mood[], tags varchar(10)[] NOT NULL,
  grid integer[][], amount money, size posint, ratio real, big double precision, data jsonb, at timestamptz, local timestamp(3),
  day date, part_of_day time, took interval, address inet, raw bytea, padded char(4), span int4range,
  doubled integer GENERATED ALWAYS AS (2 * 3) STORED, other uuid, flag boolean,
  seen moment, email text COLLATE no_case UNIQUE
);
CREATE TABLE parts (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thing_id uuid NOT NULL REFERENCES things (id) ON DELETE CASCADE, name text);
ALTER TABLE parts ADD CONSTRAINT one UNIQUE (thing_id);
INSERT INTO things VALUES ('9d0f6c1e-9a44-4c39-8f0a-0e8b2d3f4a5b', 'it''s ok', '{sad,"it''s ok"}', '{a,"b, c"}', '{{1,2},{3,4}}', 12.50, 3, 0.1, 1e300,
  '{"a": [1, null]}', '2026-11-15 03:28:14.123456+01', '2026-11-15 02:28:14.5', '2026-11-15', '10:30', '1 day', '10.0.0.1', '\xDEAD', 'ab', '[1,5)',
  DEFAULT, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', false, '2026-11-15 03:28:14.123456+01', 'Ann@example.com');
INSERT INTO parts (thing_id, name) VALUES ('9d0f6c1e-9a44-4c39-8f0a-0e8b2d3f4a5b', NULL)
"#;
