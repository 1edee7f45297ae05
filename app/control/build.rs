//! The description of the API, as `/openapi.json` answers it, is packed: half a megabyte of text is a tenth of that in
//! the program.

use std::{env, fs, io, path::Path};

const DESCRIPTION: &str = "../../api/openapi.json";
/// The best there is: it is packed once for each build.
const LEVEL: u8 = 10;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={DESCRIPTION}");
    let packed = miniz_oxide::deflate::compress_to_vec(&fs::read(DESCRIPTION)?, LEVEL);
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("openapi.json.deflate"), packed)
}
