//! The folders and programs of distributions for an administrator's root certificates.

use std::path::{Path, PathBuf};

/// The layout of one distribution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The folder for the administrator's own roots, without the leading slash.
    pub(crate) anchors: &'static str,
    /// The program that rebuilds the store.
    pub(crate) update: &'static str,
    /// Arguments after the removal of a root: without them some keep links to the root's file.
    pub(crate) update_after_removal: &'static [&'static str],
    /// Whether the folder must exist to recognise the distribution; otherwise the program suffices.
    needs_folder: bool,
}

/// In the order of the search: the names of the programs are shared, the folders are not.
const LAYOUTS: &[Layout] = &[
    // Fedora, RHEL and derivatives.
    Layout {
        anchors: "etc/pki/ca-trust/source/anchors",
        update: "update-ca-trust",
        update_after_removal: &[],
        needs_folder: true,
    },
    // Arch.
    Layout {
        anchors: "etc/ca-certificates/trust-source/anchors",
        update: "update-ca-trust",
        update_after_removal: &[],
        needs_folder: true,
    },
    // SUSE.
    Layout {
        anchors: "etc/pki/trust/anchors",
        update: "update-ca-certificates",
        update_after_removal: &["--fresh"],
        needs_folder: true,
    },
    // Debian, Ubuntu, Alpine. The program reads files that end in .crt.
    Layout {
        anchors: "usr/local/share/ca-certificates",
        update: "update-ca-certificates",
        update_after_removal: &["--fresh"],
        needs_folder: false,
    },
];

const PROGRAM_FOLDERS: &[&str] = &["usr/sbin", "usr/bin", "sbin", "bin"];

/// The layout found on a system.
pub(crate) struct Found {
    /// The folder for the administrator's roots; may have to be created.
    pub(crate) anchors: PathBuf,
    /// The program that rebuilds the store.
    pub(crate) program: PathBuf,
    /// The layout.
    pub(crate) layout: &'static Layout,
}

/// Finds the layout of the system whose files are under `root`.
pub(crate) fn find(root: &Path) -> Option<Found> {
    LAYOUTS.iter().find_map(|layout| {
        let program =
            PROGRAM_FOLDERS.iter().map(|folder| root.join(folder).join(layout.update)).find(|p| p.is_file())?;
        let anchors = root.join(layout.anchors);
        (!layout.needs_folder || anchors.is_dir()).then_some(Found { anchors, program, layout })
    })
}
