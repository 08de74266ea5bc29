//! The executable; `lib.rs` has the modules.

fn main() -> std::process::ExitCode {
    nouns::main()
}
