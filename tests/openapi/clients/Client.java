// Uses the classes that openapi-generator generates (generator java, library native).
//
// Arguments: the origin of the server, a user and its password. Fails at the first response that is not as
// expected; `tests/it/openapi/generated_code.rs` reads the change log afterwards.

import java.net.URI;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;

import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.CustomersApi;
import org.openapitools.client.api.OrdersApi;
import org.openapitools.client.model.*;

public final class Client {
    public static void main(String[] args) throws ApiException {
        URI origin = URI.create(args[0]);
        CustomersApi customers = new CustomersApi(login(origin, args[1], args[2]));
        OrdersApi orders = new OrdersApi(login(origin, args[1], args[2]));

        // Create, one and several.
        Customer ann = create(customers, "Ann");
        equal("Ann ann@example.com 1", ann.getName() + " " + ann.getEmail() + " " + ann.getVersion());
        Customer bob = create(customers, "Bob");
        CustomerCreateBody batch = new CustomerCreateBody();
        for (String name : List.of("Cid", "Dot")) {
            batch.addCustomersItem(new CustomerCreate().name(name).email("both@example.com"));
        }
        CustomerCreated several = customers.createCustomer(batch, "a-key-of-the-client");
        equal(List.of("Cid", "Dot"),
            several.getCustomers().stream().map(Customer::getName).toList());

        // Read.
        var read = customers.getCustomerWithHttpInfo(get(ann.getId()));
        CustomerSelection found = read.getData().getCustomer();
        equal(List.of(ann.getId(), ann.getName(), ann.getCreatedAt()),
            List.of(found.getId(), found.getName(), found.getCreatedAt()));
        String tag = read.getHeaders().get("etag").get(0);

        // Update with the tag, and once more with the same tag, which is stale then.
        CustomerPatchBody patch = new CustomerPatchBody().customer(new CustomerPatch().name("Anna"));
        Customer patched = customers.updateCustomer(ann.getId(), patch, tag, null, null).getCustomer();
        equal("Anna 2", patched.getName() + " " + patched.getVersion());
        refuses(412, "precondition-failed",
            () -> customers.updateCustomer(ann.getId(), patch, tag, null, null));
        CustomerReplaceBody replacement = new CustomerReplaceBody()
            .customer(new CustomerReplace().name("Robert").email(bob.getEmail()));
        equal("Robert",
            customers.replaceCustomer(bob.getId(), replacement, "\"1\"", null).getCustomer().getName());

        // An item below another one, with a list, a state and a computed field.
        OrderCreateItemsInner pens = new OrderCreateItemsInner().product("pen").quantity(3L).unitPrice(250L);
        OrderCreateBody cart = new OrderCreateBody().order(new OrderCreate().addItemsItem(pens));
        Order order = orders.createOrder(ann.getId(), cart, null).getOrder();
        equal(List.of(OrderStatus.PLACED, 750L, ann.getId()),
            List.of(order.getStatus(), order.getTotal(), order.getCustomerId()));
        OrderPatchBody payment = new OrderPatchBody().order(new OrderPatch().status(OrderStatus.PAID));
        equal(OrderStatus.PAID,
            orders.updateOrder(ann.getId(), order.getId(), payment, null, null, null).getOrder().getStatus());

        OrderList filtered = orders.listOrders(OrdersApi.APIListOrdersRequest.newBuilder()
            .customerId(ann.getId()).statusIn(List.of(OrderStatus.PAID, OrderStatus.SHIPPED)).build());
        equal(List.of(order.getId()), filtered.getOrders().stream().map(OrderSelection::getId).toList());

        // List with a filter and an order, page by page.
        List<String> names = new ArrayList<>();
        String cursor = null;
        int pages = 0;
        do {
            CustomerList page = list(customers, cursor);
            equal(4, page.getPage().getTotal());
            page.getCustomers().forEach(one -> names.add(one.getName()));
            cursor = page.getPage().getNext();
            pages += 1;
        } while (cursor != null);
        equal("[Robert, Dot, Cid, Anna] 2", names + " " + pages);

        // Delete.
        customers.deleteCustomer(ann.getId(), null, null);
        refuses(404, "not-found", () -> customers.getCustomer(get(ann.getId())));

        // Problems: an invalid field, and a wrong password.
        refuses(422, "invalid-fields", () -> customers.createCustomer(
            body(new CustomerCreate().name("Eve").email("eve")), null));
        CustomersApi stranger = new CustomersApi(login(origin, args[1], "wrong"));
        refuses(401, "credentials-wrong", () -> list(stranger, null));
    }

    static ApiClient login(URI origin, String user, String password) {
        String token = Base64.getEncoder().encodeToString((user + ":" + password).getBytes());
        ApiClient client = new ApiClient();
        client.updateBaseUri(origin.toString());
        client.setRequestInterceptor(request -> request.header("Authorization", "Basic " + token));
        return client;
    }

    static CustomersApi.APIGetCustomerRequest get(UUID id) {
        return CustomersApi.APIGetCustomerRequest.newBuilder().customerId(id).build();
    }

    static CustomerList list(CustomersApi customers, String cursor) throws ApiException {
        return customers.listCustomers(CustomersApi.APIListCustomersRequest.newBuilder()
            .emailContains("example.com").sort(Set.of("-name")).limit(3).count("exact").cursor(cursor)
            .build());
    }

    static CustomerCreateBody body(CustomerCreate customer) {
        return new CustomerCreateBody().customer(customer);
    }

    static Customer create(CustomersApi customers, String name) throws ApiException {
        String email = name.toLowerCase() + "@example.com";
        var response = customers.createCustomerWithHttpInfo(
            body(new CustomerCreate().name(name).email(email)), null);
        Customer made = response.getData().getCustomer();
        equal("/customers/" + made.getId(), response.getHeaders().get("location").get(0));
        return made;
    }

    interface Request { void send() throws ApiException; }

    static void refuses(int status, String slug, Request request) {
        try {
            request.send();
        } catch (ApiException refusal) {
            equal(status, refusal.getCode());
            if (!refusal.getResponseBody().contains("/-/problems/" + slug)) {
                throw new AssertionError(refusal.getResponseBody());
            }
            return;
        }
        throw new AssertionError("expected " + status);
    }

    static void equal(Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError("expected " + expected + ", got " + actual);
        }
    }
}
