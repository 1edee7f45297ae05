//! The file that BIRD includes. It is replaced as a whole.

use std::{
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The longest file that is read back, in bytes.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// What there is before the first announcement. BIRD does not start if an included file is missing, nor without any
/// protocol.
const EMPTY: &str = "# Written by sallyport. Nothing is announced yet.\nprotocol device sp_device { }\n";
/// Only BIRD reads the passwords of sessions.
const MODE: u32 = 0o640;

/// The file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be {what}: {error}")]
pub struct FileError {
    path: PathBuf,
    what: &'static str,
    #[source]
    error: io::Error,
}

/// Writes a file that announces nothing if there is none, so that BIRD can start.
///
/// # Errors
/// It cannot be written.
pub async fn ensure_file(path: &Path) -> Result<(), FileError> {
    if tokio::fs::try_exists(path).await.unwrap_or(false) { Ok(()) } else { replace(path, EMPTY).await }
}

/// The text of the file, or that of an empty one if there is none.
pub(crate) async fn read(path: &Path) -> Result<String, FileError> {
    let failed = |error| FileError { path: path.to_owned(), what: "read", error };
    let file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(EMPTY.to_owned()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).await.map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other(format!("it is longer than {MAX_FILE_BYTES} bytes"))));
    }
    Ok(text)
}

/// Replaces the file: a new one beside it takes its name once it is on the disk.
pub(crate) async fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    let failed = |error| FileError { path: path.to_owned(), what: "written", error };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(".new");
    let beside = folder.join(beside);
    let write = async {
        // One of a run that was killed.
        match tokio::fs::remove_file(&beside).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside).await?;
        let like = match tokio::fs::metadata(path).await {
            Ok(former) => former,
            Err(_) => tokio::fs::metadata(folder).await?,
        };
        // BIRD may run as a user of its own, who owns the folder. Only root can give a file away.
        let _ = chown(&beside, Some(like.uid()), Some(like.gid()));
        file.set_permissions(std::fs::Permissions::from_mode(MODE)).await?;
        file.write_all(text.as_bytes()).await?;
        file.sync_all().await?;
        tokio::fs::rename(&beside, path).await
    };
    write.await.map_err(failed)
}
