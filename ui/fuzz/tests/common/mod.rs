//! Handlers with planted mistakes at a function of an embedded guest, and recorded runs of them.

#![allow(clippy::unwrap_used, clippy::panic, dead_code, reason = "helpers of tests, each of which uses some")]

use std::fs::File;
use std::path::{Path, PathBuf};

use trapline_fuzz::change::Scope;
use trapline_fuzz::hits::Hits;
use trapline_fuzz::objectives::Objectives;
use trapline_fuzz::trials::Trials;
use trapline_session::{
    Command, Condition, GuestBuilder, Limits, Places, Recorder, Recording, SourceOptions, compile,
};

/// A folder that is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    /// One of this name, for this process.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trapline-fuzz-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A handler with a mistake: its name, its instructions, objectives to switch on, and the one that must fall.
pub struct Planted {
    pub name: &'static str,
    pub code: &'static str,
    pub objectives: &'static [&'static str],
    pub falls: &'static str,
}

const fn planted(name: &'static str, falls: &'static str, code: &'static str) -> Planted {
    Planted { name, code, objectives: &[], falls }
}

/// The handlers. `push 0`, `push 6`, `callk` is an assertion that never holds.
pub const PLANTED: &[Planted] = &[
    // The return address is a valid pointer at every real hit, and only there.
    planted("pointer", "exception", "push r, esp\npush mem, u32\npush mem, u32\nlog 1\n"),
    planted("string", "truncated", "push 4096\npush r, esp\npush mem, u32\nlog str\n"),
    planted(
        "flag",
        "exception",
        "push r, esp\npush mem, u32\npush 0x00080000\nand\npush 0x00080000\nsub\njz seldom\nexit\nseldom:\npush 7\npush 0\ndiv\n",
    ),
    planted(
        "constant",
        "assert",
        "push r, eax\npush 0x5ca1ab1e\nxor\npush 0x1234567\nadd\npush 0xfeedface\nsub\njz bad\nexit\nbad:\npush 0\npush 6\ncallk\n",
    ),
    planted(
        "second",
        "assert",
        "inc lv, 0\npush lv, 0\npush 2\nsub\njz second\nexit\nsecond:\npush r, edx\npush 77\nsub\njz bad\nexit\nbad:\npush 0\npush 6\ncallk\n",
    ),
    planted("record", "truncated", "push r, ecx\npush 0x7f\nand\npush r, esp\npush mem, u32\nlog mrf\n"),
    Planted {
        objectives: &["writes=none"],
        ..planted(
            "stale",
            "writes",
            "push r, ebx\npush 3\nsub\njz write\nexit\nwrite:\npush r, esp\npush 1\npop mem, u8\n",
        )
    },
    planted(
        "list",
        "assert",
        "push r, eax\nnext:\njz end\npush mem, u32\ninc lv, 1\npush lv, 1\npush 5\nsub\njz long\nros 1\njmp next\nlong:\npush 0\npush 6\ncallk\nend:\nexit\n",
    ),
    planted("divisor", "exception", "push 100\npush r, esp\npush mem, u32\npush mem, u8\ndiv\nlog 1\n"),
    Planted {
        objectives: &["budget=300"],
        ..planted(
            "loop",
            "budget",
            "push r, ecx\npush 0xff\nand\njz end\nagain:\nnop\nloop again\nend:\nexit\n",
        )
    },
];

/// A handler without a mistake.
pub const CONTROL: &str = "push r, eax\npush 0xff\nand\nlog 1\npush pid\nlog 1\n";

/// A recorded run of a handler at `do_fork`.
pub fn recorded(folder: &Path, name: &str, code: &str) -> PathBuf {
    let text = format!(
        "name = vmlinux\nmodtype = kernel\nvars = 2\nlogmax = 64\noffset = do_fork\nopcode = 0x55\n{code}"
    );
    let program = compile(&format!("{name}.rpn"), &text, &SourceOptions::default()).unwrap();
    let path = folder.join(format!("{name}.tlr"));
    let builder = GuestBuilder::embedded("ia32").memory(32 << 20);
    let (builder, config, blobs) = builder.recorded(false).unwrap();
    let recorder = Recorder::begin(Box::new(File::create(&path).unwrap()), &config, &blobs).unwrap();
    let mut session = builder.start().unwrap();
    session.record(recorder).unwrap();
    session.apply(Command::insert(&format!("{name}.rpn"), program)).unwrap();
    session.run_until(&Condition::end(), &Limits::insns(20_000_000));
    assert!(session.stats().hits > 1, "{name} is hit {} times", session.stats().hits);
    session.finish_recording().unwrap();
    path
}

/// The trials of a recorded run, with objectives.
pub fn trials(path: &Path, objectives: &[&str]) -> (Trials, Scope) {
    let recording = Recording::read(path).unwrap();
    let hits = Hits::of(&recording, &Places::of(path), None, 4).unwrap();
    let mut on = Objectives::default();
    objectives.iter().for_each(|text| on.with(text).unwrap());
    let scope = Scope::of(&hits, true, true);
    (Trials::new(hits, on, 65_536), scope)
}
