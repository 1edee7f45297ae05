//! Rooms: the folders and files at the top of a crate, and the folders within a folder. No circle of uses passes through
//! a folder.
//!
//! A room may use those below it. This is an order if no path of uses leads from a room back to itself. The folders
//! within a folder are compared with each other alone: they may use the types of the files beside them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    source::{self, PathUse},
    workspace,
};

/// The rooms of one crate, and their uses of each other.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    folders: BTreeSet<String>,
    /// For each room the rooms that it uses, each with one place.
    uses: BTreeMap<String, BTreeMap<String, String>>,
}

/// One file of a crate: its path below `src`, and the paths that it uses outside of its tests.
struct File {
    path: PathBuf,
    uses: Vec<PathUse>,
}

/// The circles of the crate in this folder, in words.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn check(root: &Path, crate_folder: &Path) -> Result<Vec<String>> {
    let src = root.join(crate_folder).join("src");
    let (mut files, mut for_tests) = (Vec::new(), Vec::new());
    for path in workspace::files(&src, "rs")? {
        let found = source::uses(source::read(&path)?);
        for_tests.extend(found.test_modules.iter().flat_map(|module| module.places(&path)));
        files.push((path, found.paths));
    }
    let files = files.into_iter().filter(|(path, _)| !for_tests.iter().any(|place| path.starts_with(place)));
    let files = files.map(|(path, uses)| File { path: path.strip_prefix(&src).unwrap_or(&path).to_path_buf(), uses });
    let files: Vec<File> = files.collect();
    let folders: BTreeSet<Vec<String>> = files.iter().flat_map(|file| folders_of(&file.path)).collect();
    let name = crate_folder.display();
    let mut circles = Vec::new();
    for rooms in std::iter::once(Rooms::of(&files)).chain(folders.iter().map(|folder| Rooms::within(&files, folder))) {
        circles.extend(rooms.circles().iter().map(|circle| format!("{name}: {}", rooms.describe(circle))));
    }
    Ok(circles)
}

impl Rooms {
    fn of(files: &[File]) -> Self {
        let modules: Vec<Vec<String>> = files.iter().map(|file| module_of(&file.path)).collect();
        let names: BTreeSet<&str> = modules.iter().filter_map(|module| module.first().map(String::as_str)).collect();
        let mut rooms = Self::default();
        rooms.folders.extend(
            files
                .iter()
                .filter_map(|file| file.path.parent()?.components().next()?.as_os_str().to_str())
                .map(str::to_owned),
        );
        // A name at the crate's root belongs to the room that it is imported from.
        let mut at_root: BTreeMap<&str, &str> = BTreeMap::new();
        for file in files.iter().filter(|file| module_of(&file.path).is_empty()) {
            for used in &file.uses {
                let path: Vec<&str> = used.segments.iter().map(String::as_str).collect();
                let path = path.strip_prefix(&["self"]).or_else(|| path.strip_prefix(&["crate"])).unwrap_or(&path);
                if let ([room, .., last], true) = (path, path.first().is_some_and(|room| names.contains(room))) {
                    at_root.insert(last, room);
                }
            }
        }
        for (file, module) in files.iter().zip(&modules) {
            let Some(room) = module.first() else { continue };
            for used in &file.uses {
                let Some(target) = absolute(&used.segments, module) else { continue };
                let Some(first) = target.first().map(String::as_str) else { continue };
                let Some(to) = names.get(first).or_else(|| at_root.get(first)) else { continue };
                if *to != room {
                    let place = format!("{}:{}", file.path.display(), used.line);
                    rooms.uses.entry(room.clone()).or_default().entry((*to).to_owned()).or_insert(place);
                }
            }
        }
        rooms
    }

    /// The folders within a folder of the crate, and their uses of each other.
    fn within(files: &[File], folder: &[String]) -> Self {
        let room_of = |path: &Path| folders_of(path).into_iter().find_map(|inner| child(&inner, folder));
        let mut rooms =
            Self { folders: files.iter().filter_map(|file| room_of(&file.path)).collect(), ..Self::default() };
        for file in files {
            let Some(room) = room_of(&file.path) else { continue };
            for used in &file.uses {
                let target = absolute(&used.segments, &module_of(&file.path));
                let Some(to) = target.and_then(|target| child(&target, folder)) else { continue };
                if to != room && rooms.folders.contains(&to) {
                    let place = format!("{}:{}", file.path.display(), used.line);
                    rooms.uses.entry(room.clone()).or_default().entry(to).or_insert(place);
                }
            }
        }
        rooms
    }

    /// The circles with a folder among them: of each the shortest way around.
    fn circles(&self) -> Vec<Vec<String>> {
        let mut found: Vec<Vec<String>> = Vec::new();
        for start in self.uses.keys() {
            if found.iter().any(|circle| circle.contains(start)) {
                continue;
            }
            let circle = self.way_back(start);
            if let Some(circle) = circle.filter(|circle| circle.iter().any(|room| self.folders.contains(room))) {
                found.push(circle);
            }
        }
        found
    }

    /// The shortest way from a room back to itself.
    fn way_back(&self, start: &str) -> Option<Vec<String>> {
        let mut ways: Vec<Vec<String>> = vec![vec![start.to_owned()]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let last = way.last().map_or(start, String::as_str);
                for next in self.uses.get(last).into_iter().flat_map(BTreeMap::keys) {
                    if next == start {
                        return Some(way);
                    }
                    if seen.insert(next.clone()) {
                        longer.push([way.clone(), vec![next.clone()]].concat());
                    }
                }
            }
            ways = longer;
        }
        None
    }

    fn describe(&self, circle: &[String]) -> String {
        let next = circle.iter().cycle().skip(1);
        let arrows = circle.iter().zip(next).map(|(from, to)| {
            let place = self.uses.get(from).and_then(|uses| uses.get(to)).map_or("", String::as_str);
            format!("{from} uses {to} (src/{place})")
        });
        format!("rooms use one another in a circle: {}", arrows.collect::<Vec<_>>().join(", "))
    }
}

/// The folders that a file lies in, from the outermost one.
fn folders_of(path: &Path) -> Vec<Vec<String>> {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    (1..parts.len()).map(|depth| parts[..depth].to_vec()).collect()
}

/// The name that follows the folder in a path of names.
fn child(names: &[String], folder: &[String]) -> Option<String> {
    names.strip_prefix(folder)?.first().cloned()
}

/// The module of a file, by its path below `src`; empty for the crate's root.
fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    if module == ["lib"] || module == ["main"] {
        module.clear();
    }
    module
}

/// A used path from the crate's root; `None` if it does not begin there.
fn absolute(segments: &[String], module: &[String]) -> Option<Vec<String>> {
    let first = segments.first()?;
    if first == "crate" {
        return Some(segments[1..].to_vec());
    }
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    if ups == 0 || ups > module.len() {
        return None;
    }
    let mut target = module[..module.len() - ups].to_vec();
    target.extend_from_slice(&segments[ups..]);
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(files: &[(&str, &str)]) -> Rooms {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: path.into(), uses: source::uses(text.parse().unwrap()).paths })
            .collect();
        Rooms::of(&files)
    }

    #[test]
    fn an_order_has_no_circle() {
        let rooms = rooms(&[
            ("lib.rs", "mod a; mod b; pub use a::x::Top;"),
            ("a/mod.rs", "mod x; mod y;"),
            ("a/x.rs", "use super::y::Y; use crate::b::B;"),
            ("a/y.rs", "use super::x::X;"),
            ("b.rs", "use std::fmt;"),
        ]);
        assert_eq!(rooms.circles(), Vec::<Vec<String>>::new(), "{rooms:?}");
    }

    #[test]
    fn a_circle_is_found_whichever_way_it_is_written() {
        for back in ["use crate::a::x::X;", "use super::a::X;", "fn f() { crate::a::f() }", "use crate::Top;"] {
            let rooms = rooms(&[
                ("lib.rs", "mod a; mod b; mod c; pub use self::a::x::Top;"),
                ("a/x.rs", "use crate::{b::B};"),
                ("b.rs", "use crate::c;"),
                ("c.rs", back),
            ]);
            let circles = rooms.circles();
            assert_eq!(circles, [["a", "b", "c"]], "{back}");
            assert!(rooms.describe(&circles[0]).contains("c uses a (src/c.rs:1)"), "{}", rooms.describe(&circles[0]));
        }
    }

    #[test]
    fn folders_within_a_folder_have_an_order_too() {
        let of = |files: &[(&str, &str)]| {
            let files: Vec<File> = files
                .iter()
                .map(|(path, text)| File { path: path.into(), uses: source::uses(text.parse().unwrap()).paths })
                .collect();
            Rooms::within(&files, &["a".to_owned()]).circles()
        };
        let order =
            [("a/b/x.rs", "use super::super::c::C;"), ("a/c/mod.rs", "use crate::a::d;"), ("a/d.rs", "use super::b;")];
        assert_eq!(of(&order), Vec::<Vec<String>>::new());
        let circle = [("a/b/x.rs", "use super::super::c::C;"), ("a/c/mod.rs", "use crate::a::b::x::X;")];
        assert_eq!(of(&circle), [["b", "c"]]);
    }

    #[test]
    fn tests_and_files_without_a_folder_do_not_count() {
        let in_tests = rooms(&[("a/x.rs", "use crate::b;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a; }")]);
        assert_eq!(in_tests.circles(), Vec::<Vec<String>>::new());
        let files = rooms(&[("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")]);
        assert_eq!(files.circles(), Vec::<Vec<String>>::new());
    }
}
