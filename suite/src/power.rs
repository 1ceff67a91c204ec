// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine of a scenario that is switched on, and may lose its power.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use turnstile::failure::Result;
use turnstile::qemu::Boot;
use turnstile::session::{Ending, Notice, Session};

use super::stuck::Monitor;

/// A machine that is on.
pub struct Powered<'a> {
    boot: &'a Boot,
    qemu: &'a Path,
    /// What it is told by.
    pub session: Session,
    /// What is heard of it.
    pub notices: Receiver<Notice>,
    monitor: Monitor,
    /// The processor time that it used until it lost its power last.
    before: Duration,
}

impl<'a> Powered<'a> {
    /// Switches it on.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn on(boot: &'a Boot, qemu: &'a Path) -> Result<Self> {
        let (session, notices, monitor) = start(boot, qemu)?;
        Ok(Self { boot, qemu, session, notices, monitor, before: Duration::ZERO })
    }

    /// Takes its power away, and switches it on again.
    ///
    /// # Errors
    /// When it cannot be switched on again.
    pub fn cut(self) -> Result<Self> {
        let (boot, qemu) = (self.boot, self.qemu);
        // It has ended before another one has the files of its disks.
        let before = self.off()?.used;
        Ok(Self { before, ..Self::on(boot, qemu)? })
    }

    /// Asks where its CPUs are.
    pub fn ask(&self) -> Vec<String> {
        self.monitor.ask()
    }

    /// Switches it off; the processor time is all that it used.
    ///
    /// # Errors
    /// When nothing is heard of QEMU's end.
    pub fn off(mut self) -> Result<Ending> {
        self.session.kill();
        let ending = self.session.wait()?;
        Ok(Ending { used: ending.used + self.before, ..ending })
    }
}

fn start(boot: &Boot, qemu: &Path) -> Result<(Session, Receiver<Notice>, Monitor)> {
    let mut boot = boot.clone();
    let (monitor, theirs) = Monitor::add(&mut boot)?;
    let (sender, notices) = channel::<Notice>();
    let session = Session::start(&boot, qemu, sender)?;
    drop(theirs);
    Ok((session, notices, monitor))
}
