//! The file of the API token, which a Secret mounts.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use sallyport_api::Secret;

/// The longest token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4_096;

/// The file, and what it had when it was read last.
pub(crate) struct TokenFile {
    path: PathBuf,
    last: Option<Result<Secret, String>>,
}

impl TokenFile {
    /// A file that was not read yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    /// The token or what is wrong with the file; `None` if that is as it was.
    pub(crate) fn read(&mut self) -> Option<Result<Secret, String>> {
        let now = token_of(&self.path);
        if self.last.as_ref() == Some(&now) {
            return None;
        }
        self.last = Some(now.clone());
        Some(now)
    }
}

fn token_of(path: &Path) -> Result<Secret, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text));
    let file = path.display();
    match read {
        Err(error) => Err(format!("the API token in {file} cannot be read: {error}; mount the Secret there")),
        Ok(_) if text.len() as u64 > MAX_TOKEN_BYTES => {
            Err(format!("{file} is longer than {MAX_TOKEN_BYTES} bytes: it is no API token"))
        }
        Ok(_) if text.trim().is_empty() => {
            Err(format!("{file} is empty: put an API token into the Secret; `sallyport token create` creates one"))
        }
        Ok(_) if text.trim().contains(|c: char| c.is_control() || c == ' ') => {
            Err(format!("{file} has more than one word: an API token is one word on one line"))
        }
        Ok(_) => Ok(text.trim().to_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_when_it_changes_and_each_fault_has_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut file = TokenFile::new(path.clone());
        assert!(file.read().unwrap().unwrap_err().contains("cannot be read"));
        assert!(file.read().is_none(), "as it was");
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(file.read().unwrap().unwrap().expose(), "one");
        assert!(file.read().is_none());
        std::fs::write(&path, "one").unwrap();
        assert!(file.read().is_none(), "the same token");
        for (text, wrong) in [
            ("a b", "one word"),
            (
                " 
", "is empty",
            ),
            (
                "a
b", "one word",
            ),
            (&*"x".repeat(5_000), "longer"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(file.read().unwrap().unwrap_err().contains(wrong), "{text:.9}");
        }
    }
}
