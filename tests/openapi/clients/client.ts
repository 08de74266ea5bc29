// Uses the types that openapi-typescript generates (store.d.ts), by openapi-fetch.
//
// Arguments: the origin of the server, a user and its password. Fails at the first response that is not as
// expected; `tests/it/openapi/generated_code.rs` reads the change log afterwards.

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./store.js";

type Customer = components["schemas"]["customer.selection"];

const [baseUrl, user, password] = process.argv.slice(2) as [string, string, string];
const login = (secret: string) => "Basic " + btoa(`${user}:${secret}`);
// Without the media type, the data of a list would be its JSON or the text of its other formats.
const client = createClient<paths, "application/json">({
    baseUrl,
    headers: { Authorization: login(password) },
    // The default ignores `explode`.
    querySerializer: { array: { style: "form", explode: false } },
});

async function createCustomer(name: string) {
    const { data, error, response } = await client.POST("/customers", {
        body: { customer: { name, email: `${name.toLowerCase()}@example.com` } },
    });
    assert(data?.customer, JSON.stringify(error));
    assert.equal(response.headers.get("Location"), `/customers/${data.customer.id}`);
    return data.customer;
}

// Create, one and several.
const ann = await createCustomer("Ann");
assert.deepEqual([ann.name, ann.email, ann.version], ["Ann", "ann@example.com", 1]);
const bob = await createCustomer("Bob");
const several = await client.POST("/customers", {
    body: { customers: ["Cid", "Dot"].map((name) => ({ name, email: "both@example.com" })) },
    params: { header: { "Idempotency-Key": "a-key-of-the-client" } },
});
assert.deepEqual(several.data?.customers?.map((one) => one.name), ["Cid", "Dot"]);

// Read.
const annPath = { customer_id: ann.id };
const read = await client.GET("/customers/{customer_id}", { params: { path: annPath } });
assert.deepEqual(read.data?.customer, ann);
const tag = read.response.headers.get("ETag")!;

// Update with the tag, and once more with the same tag, which is stale then.
const patch = () =>
    client.PATCH("/customers/{customer_id}", {
        params: { path: annPath, header: { "If-Match": tag } },
        body: { customer: { name: "Anna" } },
    });
const patched = await patch();
assert.deepEqual([patched.data?.customer.name, patched.data?.customer.version], ["Anna", 2]);
const stale = await patch();
assert.equal(stale.response.status, 412);
assert.equal(stale.error?.type, "/-/problems/precondition-failed");
const replaced = await client.PUT("/customers/{customer_id}", {
    params: { path: { customer_id: bob.id }, header: { "If-Match": '"1"' } },
    body: { customer: { name: "Robert", email: bob.email } },
});
assert.equal(replaced.data?.customer.name, "Robert");

// An item below another one, with a list, a state and a computed field.
const orders = { path: annPath };
const placed = await client.POST("/customers/{customer_id}/orders", {
    params: orders,
    body: { order: { items: [{ product: "pen", quantity: 3, unit_price: 250 }] } },
});
assert(placed.data?.order, JSON.stringify(placed.error));
const order = placed.data.order;
assert.deepEqual([order.status, order.total, order.customer_id], ["placed", 750, ann.id]);
const status: components["schemas"]["order.status"] = "paid";
const paid = await client.PATCH("/customers/{customer_id}/orders/{order_id}", {
    params: { path: { ...annPath, order_id: order.id } },
    body: { order: { status } },
});
assert.equal(paid.data?.order.status, "paid");
const filtered = await client.GET("/customers/{customer_id}/orders", {
    params: { ...orders, query: { "status:in": ["paid", "shipped"] } },
});
assert.deepEqual(filtered.data?.orders.map((one) => one.id), [order.id]);

// List with a filter and an order, page by page.
const names: (string | undefined)[] = [];
let cursor: string | null | undefined;
let pages = 0;
do {
    const { data, error } = await client.GET("/customers", {
        params: {
            query: {
                "email:contains": "example.com",
                sort: ["-name"],
                fields: ["name"],
                limit: 3,
                count: "exact",
                ...(cursor ? { cursor } : {}),
            },
        },
    });
    assert(data, JSON.stringify(error));
    assert.equal(data.page.total, 4);
    names.push(...data.customers.map((one: Customer) => one.name));
    cursor = data.page.next;
    pages += 1;
} while (cursor);
assert.deepEqual([names, pages], [["Robert", "Dot", "Cid", "Anna"], 2]);

// Delete.
const gone = await client.DELETE("/customers/{customer_id}", { params: { path: annPath } });
assert.equal(gone.response.status, 204);
const missing = await client.GET("/customers/{customer_id}", { params: { path: annPath } });
assert.deepEqual([missing.response.status, missing.error?.status], [404, 404]);

// Problems: an invalid field, and a wrong password.
const invalid = await client.POST("/customers", { body: { customer: { name: "Eve", email: "eve" } } });
assert.equal(invalid.response.status, 422);
assert.equal(invalid.error?.errors?.[0]?.pointer, "/customer/email");
const refused = await client.GET("/customers", { headers: { Authorization: login("wrong") } });
assert.equal(refused.response.status, 401);
assert.equal(refused.error?.type, "/-/problems/credentials-wrong");
