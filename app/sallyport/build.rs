//! How a released program is linked: functions that are alike are there once, and so are constants, and relocations are
//! packed, where the linker and the C library can do that. docs/adr/what-was-tried.md
//! has the figures.

use std::{env, path::Path, process::Command};

/// The linker's options are known to work with the one that comes with Rust for this target.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Since when the C library can read packed relocations.
const PACKED_SINCE: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name: &str| env::var(name).unwrap_or_default();
    // Who chooses a linker knows its options.
    let is_chosen = ["linker", "fuse-ld"].iter().any(|word| var("CARGO_ENCODED_RUSTFLAGS").contains(word));
    let is_native = var("TARGET") == TARGET && var("HOST") == TARGET;
    if var("PROFILE") != "release" || !is_native || is_chosen || !has_own_linker(&var("RUSTC")) {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    // Constants that are alike, too: where addresses of constants are compared, equal content means the same.
    println!("cargo::rustc-link-arg-bins=-Wl,--ignore-data-address-equality");
    if glibc().is_some_and(|version| version >= PACKED_SINCE) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the linker that comes with Rust is there.
fn has_own_linker(rustc: &str) -> bool {
    let sysroot = said_by(Command::new(rustc).args(["--print", "sysroot"]));
    sysroot
        .is_some_and(|root| Path::new(root.trim()).join("lib/rustlib").join(TARGET).join("bin/gcc-ld/ld.lld").exists())
}

/// The C library here, which the program will run with.
fn glibc() -> Option<(u32, u32)> {
    let said = said_by(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

fn said_by(command: &mut Command) -> Option<String> {
    let done = command.output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
}
