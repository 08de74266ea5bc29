//! Clients that third-party programs generate from the document of a running server: they compile, and create,
//! read, update, delete and list items with a login.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::third_party::{PROGRAM_LIMIT, assert_success, clients, python, scripts};
use crate::harness::{Backend, Folder, Process, Server, Setup};

/// The document of a server with users, in a folder with the program that uses the client.
struct Generation {
    server: Server,
    folder: Folder,
}

impl Generation {
    /// Copies these files beside `store.json`.
    fn new(backend: Backend, files: &[&str]) -> Self {
        let server = Setup::new(backend).with_authentication().start();
        let folder = Folder::new();
        let admin = server.admin().basic();
        let document = server.request("GET /-/openapi.json", &[("Authorization", &admin)], "");
        assert_eq!(document.status, 200, "{document:?}");
        fs::write(folder.path().join("store.json"), &document.body).unwrap();
        for file in files {
            fs::copy(scripts().join("clients").join(file), folder.path().join(file)).unwrap();
        }
        Self { server, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, command: &mut Command) {
        // Java's programs are short: most of their time would be that of the optimizing compiler.
        command.env("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC");
        let process = Process::spawn(command.current_dir(self.path()));
        assert_success(&process.end_within(PROGRAM_LIMIT));
    }

    /// Runs the program with its login, and compares the changes that it made with those that it is to make.
    fn run_client(&self, command: &mut Command) {
        let admin = self.server.admin();
        let origin = format!("http://{}", self.server.address);
        self.run(command.args([&origin, &admin.name, &admin.password]));
        let changes = self.server.request(
            "GET /-/changes?resource:in=customer,order",
            &[("Authorization", &admin.basic())],
            "",
        );
        let changes = changes.json()["changes"].as_array().unwrap().clone();
        let found = changes.iter().map(|change| {
            let name = [&change["after"], &change["before"]]
                .into_iter()
                .find_map(|item| item["name"].as_str().or(item["status"].as_str()))
                .unwrap_or_default();
            json!([change["kind"], change["resource"], name, change["actor"]])
        });
        let expected = json!([
            ["created", "customer", "Ann", "admin"],
            ["created", "customer", "Bob", "admin"],
            ["created", "customer", "Cid", "admin"],
            ["created", "customer", "Dot", "admin"],
            ["updated", "customer", "Anna", "admin"],
            ["updated", "customer", "Robert", "admin"],
            ["created", "order", "placed", "admin"],
            ["updated", "order", "paid", "admin"],
            ["deleted", "order", "paid", "admin"],
            ["deleted", "customer", "Anna", "admin"],
        ]);
        assert_eq!(found.collect::<Value>(), expected);
    }
}

/// A program of the packages of `tests/clients/package.json`.
fn node(file: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(clients().join("node_modules").join(file));
    command
}

on_every_backend! {
    fn openapi_typescript_client_compiles_and_works(backend: Backend) {
        let generation = Generation::new(backend, &["client.ts", "tsconfig.json"]);
        symlink(clients().join("node_modules"), generation.path().join("node_modules")).unwrap();
        fs::write(generation.path().join("package.json"), r#"{"type":"module"}"#).unwrap();
        let mut generate = node("openapi-typescript/bin/cli.js");
        // A field with a default may be left out.
        generate.args(["store.json", "-o", "store.d.ts", "--default-non-nullable=false"]);
        generation.run(&mut generate);
        generation.run(&mut node("typescript/bin/tsc"));
        generation.run_client(Command::new("node").arg("out/client.js"));
    }

    fn openapi_python_client_type_checks_and_works(backend: Backend) {
        let generation = Generation::new(backend, &["client.py", "openapi-python-client.yaml"]);
        let mut generate = python("openapi-python-client");
        generate.args(["generate", "--path", "store.json", "--meta", "none"]);
        generate.args(["--output-path", "store_client"]);
        generate.args(["--config", "openapi-python-client.yaml"]);
        generation.run(&mut generate);
        generation.run(python("mypy").args(["--strict", "--no-incremental", "client.py"]));
        generation.run_client(python("python3").arg("client.py"));
    }

    fn openapi_java_client_compiles_and_works(backend: Backend) {
        let generation = Generation::new(backend, &["Client.java"]);
        let mut generate = python("openapi-generator-cli");
        generate.args(["generate", "-i", "store.json", "-g", "java", "-o", "generated"]);
        generate.args(["--library", "native", "--additional-properties"]);
        generate.arg(JAVA_PROPERTIES);
        generation.run(&mut generate);
        // The generator has the libraries in itself that its code needs.
        let jar = python("python3")
            .args(["-c", "import openapi_generator_cli as it; print(it.__path__[0])"])
            .output()
            .unwrap();
        let jar = format!("{}/openapi-generator.jar", String::from_utf8(jar.stdout).unwrap().trim());
        // It is in no JDK since 11.
        let annotation = generation.path().join("generated/src/main/java/javax/annotation");
        fs::create_dir_all(&annotation).unwrap();
        let source = "package javax.annotation; \
            public @interface Generated { String value(); String date(); String comments(); }";
        fs::write(annotation.join("Generated.java"), source).unwrap();
        let mut compile = Command::new("javac");
        compile.args(["-nowarn", "-d", "out", "-cp", &jar]);
        compile.args(["-sourcepath", "generated/src/main/java", "Client.java"]);
        generation.run(&mut compile);
        generation.run_client(Command::new("java").args(["-cp", &format!("out:{jar}"), "Client"]));
    }
}

/// The parameters of a request in an object, since a list has many; a list that is not set is not sent, since
/// PATCH would replace the stored one; fields have plain types instead of `JsonNullable`.
const JAVA_PROPERTIES: &str =
    "useSingleRequestParameter=true,containerDefaultToNull=true,openApiNullable=false";
