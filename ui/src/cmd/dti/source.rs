//! Where channels are: in a machine at a position, or in a crash dump.

use trapline_dti::Found;
use trapline_session::trapline_emu::PhysMem;
use trapline_session::{DumpFile, Session};

use crate::cli::DtiSource;
use crate::cmd::dump_file::{is_dump_file, warn_if_cut};
use crate::cmd::reach::{self, Cancelled};
use crate::failure::{Exit, Failure};
use crate::no_effect;
use crate::talk::Talk;

/// The memory that is searched.
pub enum Source {
    /// That of a machine, with the exit code of its run.
    Machine(Box<Session>, Exit),
    /// That of a crash dump.
    Dump(Box<DumpFile>),
}

impl Source {
    /// Opens the dump, or goes to the position; nothing if a signal has ended the run.
    ///
    /// # Errors
    /// Bad files or options, or a position that is not reached.
    pub fn open(args: &DtiSource, cancelled: &Cancelled, talk: &Talk) -> Result<Option<Self>, Failure> {
        let is_dump = is_dump(args);
        no_effect::of_dti(args, is_dump)?;
        if is_dump {
            let opened = if args.raw { DumpFile::raw(&args.image) } else { DumpFile::open(&args.image) };
            let file = opened.map_err(|error| Failure::Dump { path: args.image.clone(), error })?;
            warn_if_cut(&args.image, &file, talk);
            return Ok(Some(Self::Dump(Box::new(file))));
        }
        let reached = reach::machine(&args.image, &args.machine, args.restore.as_deref(), cancelled, talk)?;
        Ok(reached.map(|(session, exit)| Self::Machine(Box::new(session), exit)))
    }

    /// Finds the channels.
    pub fn find(&self) -> Found {
        match self {
            Self::Machine(session, _) => session.channels(),
            Self::Dump(file) => trapline_dti::find(file.as_ref(), &file.stored()),
        }
    }

    /// The memory.
    pub fn memory(&self) -> &dyn PhysMem {
        match self {
            Self::Machine(session, _) => session.core().ram(),
            Self::Dump(file) => file.as_ref(),
        }
    }

    /// The exit code of the command.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Machine(_, exit) => *exit,
            Self::Dump(_) => Exit::Ok,
        }
    }
}

/// Whether channels are read from a file with memory: a dump, or an image of it.
pub fn is_dump(args: &DtiSource) -> bool {
    args.raw || is_dump_file(&args.image)
}
