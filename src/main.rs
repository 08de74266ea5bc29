//! The executable; `lib.rs` has the modules.

/// Quicker than the system's with what is small and does not live long, which is all of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // It takes memory in large pieces, which some systems fill with large pages at the first touch: 16 MB
    // more, and nothing is quicker. Where the system does not listen, that is what it costs.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    nouns::main()
}
