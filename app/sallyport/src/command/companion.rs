//! `sallyport lab`, `sallyport kube` and `sallyport packet`: start the programs `sallyport-lab`, `sallyport-kube` and
//! `sallyport-packet`.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use clap::Args;
use sallyport_cli::program;

use crate::{
    context::Global,
    failure::{Failure, Kind},
};

/// A program of its own, which a command of the same name starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Companion {
    /// The name of the command.
    pub(crate) name: &'static str,
    /// The program.
    program: &'static str,
    /// What it is, as the subject of a sentence.
    subject: &'static str,
}

/// The laboratory.
pub(crate) const LAB: Companion = Companion { name: "lab", program: "sallyport-lab", subject: "the laboratory" };
/// The controller for Kubernetes.
pub(crate) const KUBE: Companion =
    Companion { name: "kube", program: "sallyport-kube", subject: "the controller for Kubernetes" };
/// The packet path.
pub(crate) const PACKET: Companion =
    Companion { name: "packet", program: "sallyport-packet", subject: "the packet path" };
/// All of them.
const COMPANIONS: [Companion; 3] = [LAB, KUBE, PACKET];

/// The arguments of a companion.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct CompanionArgs {
    /// The words of its command line; `--help` lists them
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Companion {
    /// The companion that this word of a command line starts.
    pub(crate) fn of_word(word: impl AsRef<std::ffi::OsStr>) -> Option<Self> {
        COMPANIONS.into_iter().find(|companion| word.as_ref() == companion.name)
    }

    /// Replaces this process by the program, with the global options before its own.
    pub(crate) fn run(self, global: &Global, args: &CompanionArgs) -> anyhow::Result<()> {
        // The program reads the environment itself.
        let environment = std::env::var_os("SALLYPORT_CA");
        let ca = global.ca.iter().filter(|file| Some(file.as_os_str()) != environment.as_deref());
        let ca = ca.flat_map(|file| ["--ca".into(), file.into()]);
        self.start(ca.chain(global.printing.to_args()).chain(args.words.iter().cloned()))
    }

    /// Replaces this process by the program; returns only if the program cannot be started.
    pub(crate) fn start(self, args: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
        let Self { program: name, subject, .. } = self;
        let program = program::find(name).ok_or_else(|| {
            let missing =
                format!("{subject} is a program of its own, {name}, which is neither beside sallyport nor on PATH");
            let step = match self {
                // Only this one needs a compiler for programs of the kernel.
                PACKET => format!("`scripts/need clang && cargo build --package {name}` of the sources builds it"),
                _ => {
                    format!(
                        "`sudo apt install {name}` installs its package, `scripts/install` of the sources installs both"
                    )
                }
            };
            Failure::new(Kind::Failed, missing).next(step)
        })?;
        let error = Command::new(&program).args(args).exec();
        Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
    }
}
