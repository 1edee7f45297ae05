//! Compiles the programs of packet/bpf by clang.

use std::{env, fs, path::Path, process::Command};

/// The programs.
const PROGRAMS: [&str; 4] = ["router", "generate", "balance", "decap"];
/// The folder of the sources.
const SOURCES: &str = "../../packet/bpf";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    let out = env::var("OUT_DIR").unwrap_or_default();
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    for program in PROGRAMS {
        compile(&clang, program, &Path::new(&out).join(format!("{program}.bpf.o")));
    }
}

/// Compiles a program. Without clang its object is empty.
fn compile(clang: &str, program: &str, object: &Path) {
    let mut command = Command::new(clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c"]);
    // The folder of the build is no part of the program: another folder gives the same bytes.
    command.arg("-fdebug-compilation-dir=.");
    command.arg(Path::new(SOURCES).join(format!("{program}.bpf.c"))).arg("-o").arg(object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => println!("cargo::error=clang does not compile packet/bpf/{program}.bpf.c: {status}"),
        // Other programs of the workspace build without clang, so the crate builds, and says at run time what it lacks.
        Err(_) => {
            println!(
                "cargo::warning={clang} is not there, so this sallyport-packet lacks {program}; run scripts/need \
                 clang, and build again"
            );
            // A file that is never there: the next build looks for clang again.
            println!("cargo::rerun-if-changed=clang-is-missing");
            if let Err(error) = fs::write(object, []) {
                println!("cargo::error=cannot write {}: {error}", object.display());
            }
        }
    }
}
