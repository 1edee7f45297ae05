//! Other programs of the same installation.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The path of the program with this name: beside the running program, or the first one on `PATH`.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let here = env::current_exe().ok();
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(
        here.as_deref().and_then(Path::parent).map(Path::to_path_buf).into_iter().chain(env::split_paths(&path)),
        name,
    )
}

fn find_in(mut folders: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_the_program_counts() {
        let here = env::current_exe().unwrap();
        let (folder, name) = (here.parent().unwrap().to_path_buf(), here.file_name().unwrap().to_str().unwrap());
        let folders = || ["/proc/self/fd".into(), folder.clone(), "/".into()].into_iter();
        assert_eq!(find_in(folders(), name), Some(here.clone()));
        assert_eq!(find(name), Some(here));
        assert_eq!(find_in(folders(), "no-such-program"), None);
    }
}
