// The two clients of Java's own library. The scheme has the client before it: `connection digest`.
// What the other files here share is in this one too, since it is run from its source.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Authenticator;
import java.net.HttpURLConnection;
import java.net.PasswordAuthentication;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

import static java.nio.charset.StandardCharsets.UTF_8;

public class Java {
    record Answer(int status, String text) {}

    interface Client {
        Answer send(String method, String url, String body) throws Exception;
    }

    static Authenticator person(String name, String password) {
        // In docs/reference/clients.md:
        Authenticator person = new Authenticator() {
            @Override
            protected PasswordAuthentication getPasswordAuthentication() {
                return new PasswordAuthentication(name, password.toCharArray());
            }
        };
        // Not in it:
        return person;
    }

    static Client connection(SSLContext trust, Authenticator person) {
        return (method, url, body) -> {
            // In docs/reference/clients.md:
            var connection = (HttpURLConnection) new URI(url).toURL().openConnection();
            connection.setAuthenticator(person);
            // Not in it:
            connection.setRequestMethod(method);
            if (connection instanceof HttpsURLConnection secure) {
                secure.setSSLSocketFactory(trust.getSocketFactory());
            }
            if (!body.isEmpty()) {
                connection.setDoOutput(true);
                connection.setRequestProperty("Content-Type", "application/json");
                connection.getOutputStream().write(body.getBytes(UTF_8));
            }
            int status = connection.getResponseCode();
            InputStream text = status < 400 ? connection.getInputStream() : connection.getErrorStream();
            return new Answer(status, text == null ? "" : new String(text.readAllBytes(), UTF_8));
        };
    }

    static Client client(SSLContext trust, Authenticator person) {
        // In docs/reference/clients.md:
        var builder = HttpClient.newBuilder().authenticator(person);
        // Not in it:
        var client = builder.sslContext(trust).build();
        return (method, url, body) -> {
            var request = HttpRequest.newBuilder(new URI(url));
            if (body.isEmpty()) {
                request.method(method, HttpRequest.BodyPublishers.noBody());
            } else {
                request.method(method, HttpRequest.BodyPublishers.ofString(body));
                request.header("Content-Type", "application/json");
            }
            var answer = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
            return new Answer(answer.statusCode(), answer.body());
        };
    }

    /** Trusts those whose certificates are signed by the one in a file. */
    static SSLContext trust(String file) throws Exception {
        var known = KeyStore.getInstance(KeyStore.getDefaultType());
        known.load(null);
        try (var stream = new FileInputStream(file)) {
            known.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(stream));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(known);
        var context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        var out = new PrintStream(System.out, true, UTF_8);
        String base = "";
        Client client = null;
        var trust = trust(System.getenv("CLIENT_CA"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("VERSION")) {
                out.println(System.getProperty("java.version"));
            } else if (line.equals("LOGIN")) {
                base = lines.readLine();
                var scheme = lines.readLine();
                var person = person(lines.readLine(), lines.readLine());
                client = scheme.startsWith("client ") ? client(trust, person) : connection(trust, person);
            } else {
                var words = line.split(" ", 3);
                Answer answer;
                try {
                    answer = client.send(words[0], base + words[1], words[2]);
                } catch (IOException error) {
                    answer = new Answer(0, error.toString());
                }
                out.println(answer.status() + " " + answer.text().replace("\n", " "));
            }
        }
        System.exit(0);
    }
}
