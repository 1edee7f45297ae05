//! The pinned programs of a folder, and the devices that they are at.

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use libbpf_rs::{Object, Program};

use crate::{
    Change, XdpError,
    attach::{Attached, id_of},
    error::{asked, pinned},
    kernel::Device,
};

/// The pins of programs: this and the id of the program. A name in bpffs has no dot.
const PROGRAM: &str = "program-";
/// The most pins that are looked at.
const MAX_PINS: usize = 4096;

/// The programs that former runs have pinned: several, if one was killed while it replaced one by another.
pub(crate) struct PinnedPrograms<'a> {
    pins: &'a Path,
    programs: Vec<OwnedFd>,
}

impl<'a> PinnedPrograms<'a> {
    /// The programs in this folder.
    pub(crate) fn of(pins: &'a Path) -> Self {
        let programs = paths(pins).into_iter().filter_map(|pin| Program::fd_from_pinned_path(pin).ok()).collect();
        Self { pins, programs }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// Pins the next program before it is attached, so that a killed run leaves nothing unknown at a device.
    pub(crate) fn pin_next(&self, object: &Object, function: &str) -> Result<OwnedFd, XdpError> {
        let mut program = object.progs_mut().find(|program| program.name() == function).ok_or(XdpError::NoProgram)?;
        let id = Program::id_from_fd(program.as_fd()).map_err(asked("look at the loaded program"))?;
        let pin = self.pins.join(format!("{PROGRAM}{id}"));
        program.pin(&pin).map_err(asked(format!("pin {}", pin.display())))?;
        Program::fd_from_pinned_path(&pin).map_err(asked(format!("open {}", pin.display())))
    }

    /// Attaches the next program to these devices, in place of one of these programs. After a failure, the devices have
    /// what they had. With `redirects`, a device that cannot send what is redirected to it is a failure.
    pub(crate) fn attach<'d>(
        &self,
        next: &OwnedFd,
        wanted: impl Iterator<Item = &'d Device>,
        redirects: bool,
    ) -> Result<Change, XdpError> {
        let attached = Attached::new(next.as_fd());
        let mut done: Vec<(&Device, _)> = Vec::new();
        for device in wanted {
            match attached.attach(device, &self.programs) {
                Ok(before) => done.push((device, before)),
                Err(error) => {
                    self.take_back(next, &done);
                    return Err(error);
                }
            }
        }
        if redirects && let Err(error) = done.iter().try_for_each(|(device, _)| attached.refuse_unable(device)) {
            self.take_back(next, &done);
            return Err(error);
        }
        let mut change = Change::default();
        for (device, before) in done {
            let names = if before.is_some() { &mut change.replaced } else { &mut change.attached };
            names.push(device.name.clone());
        }
        Ok(change)
    }

    /// The devices get back the programs of these ids.
    fn take_back(&self, next: &OwnedFd, done: &[(&Device, Option<u32>)]) {
        let Ok(new) = next.try_clone().map(|next| [next]) else { return };
        for (device, before) in done {
            match before.and_then(|id| self.programs.iter().find(|old| id_of(old) == Some(id))) {
                Some(old) => drop(Attached::new(old.as_fd()).attach(device, &new)),
                None => drop(Attached::new(next.as_fd()).detach(device, &new)),
            }
        }
    }

    /// Those of these devices that have no program at all.
    pub(crate) fn missing<'d>(&self, devices: impl Iterator<Item = &'d Device>) -> Result<Vec<&'d Device>, XdpError> {
        let Some(first) = self.programs.first() else { return Ok(Vec::new()) };
        let (attached, mut missing) = (Attached::new(first.as_fd()), Vec::new());
        for device in devices {
            if attached.there(device)? == 0 {
                missing.push(device);
            }
        }
        Ok(missing)
    }

    /// Detaches these programs. Says which of the devices had one.
    pub(crate) fn detach<'d>(&self, devices: impl Iterator<Item = &'d Device>) -> Result<Vec<String>, XdpError> {
        let Some(first) = self.programs.first() else { return Ok(Vec::new()) };
        let attached = Attached::new(first.as_fd());
        let mut names = Vec::new();
        for device in devices {
            if attached.detach(device, &self.programs)? {
                names.push(device.name.clone());
            }
        }
        Ok(names)
    }

    /// Removes the pin of a next program that was not attached.
    pub(crate) fn unpin(&self, next: &OwnedFd) {
        if let Some(id) = id_of(next) {
            drop(fs::remove_file(self.pins.join(format!("{PROGRAM}{id}"))));
        }
    }

    /// Removes the pins of all programs but the next one, which is at the devices now.
    pub(crate) fn unpin_all_but(&self, next: &OwnedFd) -> Result<(), XdpError> {
        let Some(kept) = id_of(next).map(|id| format!("{PROGRAM}{id}")) else { return Ok(()) };
        for pin in paths(self.pins).into_iter().filter(|pin| !pin.ends_with(&kept)) {
            fs::remove_file(&pin).map_err(pinned(format!("remove {}", pin.display())))?;
        }
        Ok(())
    }
}

/// Removes the pins of programs, of these maps and folders, and the folder itself.
pub(crate) fn remove<'n>(pins: &Path, maps: impl Iterator<Item = &'n str>, folders: &[&str]) -> Result<(), XdpError> {
    for pin in maps.map(|name| pins.join(name)).chain(paths(pins)) {
        match fs::remove_file(&pin) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(pinned(format!("remove {}", pin.display()))(error));
            }
            _ => {}
        }
    }
    for folder in folders {
        drop(fs::remove_dir(pins.join(folder)));
    }
    drop(fs::remove_dir(pins));
    Ok(())
}

fn paths(pins: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(pins).into_iter().flatten().take(MAX_PINS).filter_map(Result::ok);
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PROGRAM));
    ours.map(|entry| entry.path()).collect()
}
