"""Uses the package that openapi-python-client generates (store_client).

Arguments: the origin of the server, a user and its password. Fails at the first response that is not as
expected; `tests/it/openapi/generated_code.rs` reads the change log afterwards.
"""

import sys
from base64 import b64encode

from store_client import AuthenticatedClient
from store_client.api.customers import (
    create_customer,
    delete_customer,
    get_customer,
    list_customers,
    replace_customer,
    update_customer,
)
from store_client.api.orders import create_order, list_orders, update_order
from store_client.models import (
    Customer,
    CustomerBody,
    CustomerCreate,
    CustomerCreateBody,
    CustomerCreated,
    CustomerList,
    CustomerPatch,
    CustomerPatchBody,
    CustomerReplace,
    CustomerReplaceBody,
    CustomerSelectionBody,
    ListCustomersCount,
    ListCustomersSortItem,
    Order,
    OrderBody,
    OrderCreate,
    OrderCreateBody,
    OrderCreated,
    OrderCreateItemsItem,
    OrderList,
    OrderPatch,
    OrderPatchBody,
    OrderStatus,
    ServerProblem,
)
from store_client.types import UNSET, Unset

ORIGIN, USER, PASSWORD = sys.argv[1:]


def login(password: str) -> AuthenticatedClient:
    token = b64encode(f"{USER}:{password}".encode()).decode()
    return AuthenticatedClient(ORIGIN, token=token, prefix="Basic")


client = login(PASSWORD)


def create(name: str) -> Customer:
    customer = CustomerCreate(name=name, email=f"{name.lower()}@example.com")
    response = create_customer.sync_detailed(client=client, body=CustomerCreateBody(customer=customer))
    assert isinstance(response.parsed, CustomerCreated), response
    made = response.parsed.customer
    assert isinstance(made, Customer), response
    assert response.headers["Location"] == f"/customers/{made.id}", response
    return made


# Create, one and several.
ann = create("Ann")
assert (ann.name, ann.email, ann.version) == ("Ann", "ann@example.com", 1), ann
bob = create("Bob")
several = create_customer.sync(
    client=client,
    body=CustomerCreateBody(
        customers=[CustomerCreate(name, "both@example.com") for name in ("Cid", "Dot")]
    ),
    idempotency_key="a-key-of-the-client",
)
assert isinstance(several, CustomerCreated) and isinstance(several.customers, list), several
assert [one.name for one in several.customers] == ["Cid", "Dot"], several

# Read.
read = get_customer.sync_detailed(ann.id, client=client)
assert isinstance(read.parsed, CustomerSelectionBody), read
assert read.parsed.customer.to_dict() == ann.to_dict(), read
tag = read.headers["ETag"]

# Update with the tag, and once more with the same tag, which is stale then.
patch = CustomerPatchBody(CustomerPatch(name="Anna"))
patched = update_customer.sync(ann.id, client=client, body=patch, if_match=tag)
assert isinstance(patched, CustomerBody), patched
assert (patched.customer.name, patched.customer.version) == ("Anna", 2), patched
stale = update_customer.sync(ann.id, client=client, body=patch, if_match=tag)
assert isinstance(stale, ServerProblem), stale
assert (stale.status, stale.type_) == (412, "/-/problems/precondition-failed"), stale
replacement = CustomerReplaceBody(CustomerReplace(name="Robert", email=bob.email))
replaced = replace_customer.sync(bob.id, client=client, body=replacement, if_match='"1"')
assert isinstance(replaced, CustomerBody) and replaced.customer.name == "Robert", replaced

# An item below another one, with a list, a state and a computed field.
pens = OrderCreateItemsItem(product="pen", quantity=3, unit_price=250)
placed = create_order.sync(ann.id, client=client, body=OrderCreateBody(order=OrderCreate(items=[pens])))
assert isinstance(placed, OrderCreated) and isinstance(placed.order, Order), placed
order = placed.order
assert (order.status, order.total, order.customer_id) == (OrderStatus.PLACED, 750, ann.id), order
payment = OrderPatchBody(OrderPatch(status=OrderStatus.PAID))
paid = update_order.sync(ann.id, order.id, client=client, body=payment)
assert isinstance(paid, OrderBody) and paid.order.status == OrderStatus.PAID, paid
filtered = list_orders.sync(ann.id, client=client, status=OrderStatus.PAID)
assert isinstance(filtered, OrderList), filtered
assert [one.id for one in filtered.orders] == [order.id], filtered

# List with a filter and an order, page by page.
names: list[str | Unset] = []
cursor: str | None = None
pages = 0
while pages == 0 or cursor:
    page = list_customers.sync(
        client=client,
        emailcontains="example.com",
        sort=[ListCustomersSortItem.NAME_DESCENDING],
        limit=3,
        count=ListCustomersCount.EXACT,
        cursor=cursor or UNSET,
    )
    assert isinstance(page, CustomerList), page
    assert page.page.total == 4, page
    names += [one.name for one in page.customers]
    cursor = page.page.next_
    pages += 1
assert (names, pages) == (["Robert", "Dot", "Cid", "Anna"], 2), (names, pages)

# Delete.
gone = delete_customer.sync_detailed(ann.id, client=client)
assert gone.status_code == 204, gone
missing = get_customer.sync(ann.id, client=client)
assert isinstance(missing, ServerProblem) and missing.status == 404, missing

# Problems: an invalid field, and a wrong password.
invalid = create_customer.sync(
    client=client, body=CustomerCreateBody(customer=CustomerCreate(name="Eve", email="eve"))
)
assert isinstance(invalid, ServerProblem) and invalid.status == 422, invalid
assert not isinstance(invalid.errors, Unset), invalid
assert invalid.errors[0].pointer == "/customer/email", invalid
refused = list_customers.sync(client=login("wrong"))
assert isinstance(refused, ServerProblem) and refused.status == 401, refused
assert refused.type_ == "/-/problems/credentials-wrong", refused
