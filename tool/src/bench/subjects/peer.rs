// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the other hypervisors have in common: a machine with plain text on its serial line that runs to its end
//! without a user, and a guest's report somewhere in that text.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Modules, Outcome, Run, mitigations};
use crate::bench::report::{Report, printable};
use crate::failure::{Context, Failure, Result};
use crate::meter::Options;
use crate::meter::reading::Reading;
use crate::qemu::Boot;
use crate::setup::last_lines;
use crate::usage;

/// The machine's memory in bytes.
pub const MEMORY: u64 = 1 << 30;
/// A machine with nothing more to wait for uses no processor time; a busy host gives it some within this time.
const STALL: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(20);
/// How many lines of what was said belong to a failure.
const LINES: usize = 25;

/// Runs a machine with the meter to its end. `guest` picks the guest's text out of the serial line's.
pub fn measure(
    run: &Run<'_>,
    mut boot: Boot,
    version: String,
    guest: impl Fn(&str) -> std::result::Result<String, String>,
) -> Result<Outcome> {
    let out = run.folder.join("reading.json");
    boot.counted = true;
    let options = Options { trace: run.trace, footprint: run.footprint, ..Options::default() };
    boot.extra.extend(["-plugin".into(), options.argument(&run.meter, &out)]);
    let said = play(&boot, &run.qemu.path, run.limit)?;
    let text = guest(&said).map_err(|what| Failure::failed(printable(&what)).details(shown(&said)))?;
    let report = Report::find(run.row, run.row.iterations(run.iterations), &text)?;
    let mitigations = mitigations::of_linux(&printable(&said));
    Ok(Outcome { report, reading: Reading::load(&out)?, version, mitigations, modules: Modules::find(&said) })
}

/// Runs a machine until it ends by itself, and returns what it wrote on its serial line.
pub fn play(boot: &Boot, program: &Path, limit: Duration) -> Result<String> {
    hear(boot.start(program)?, "QEMU", limit)
}

/// Waits until a program ends by itself, and returns what it wrote.
///
/// `limit` is the processor time that it may use: on a busy machine it grows as slowly as the program does.
pub fn hear(mut child: Child, name: &str, limit: Duration) -> Result<String> {
    // Nobody types.
    drop(child.stdin.take());
    let said = child.stdout.take().map(collect);
    let messages = child.stderr.take().map(collect);
    let ended = wait(&mut child, limit, STALL);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let text = |collected: Option<JoinHandle<Vec<u8>>>| {
        let bytes = collected.and_then(|thread| thread.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (said, messages) = (text(said), text(messages));
    let details = || shown(&format!("{said}\n{messages}"));
    match ended {
        Ok(status) if status.success() => Ok(said),
        Ok(status) => Err(Failure::failed(format!("{name} ended with {status}")).details(details())),
        Err(failure) => Err(failure.details(details())),
    }
}

/// Waits for a program's end, unless it takes too long or nothing happens any more.
fn wait(child: &mut Child, limit: Duration, stall: Duration) -> Result<ExitStatus> {
    let mut used = Duration::ZERO;
    let mut last = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context(|| "cannot wait for a program".into())? {
            return Ok(status);
        }
        let now = usage::own(child.id()).unwrap_or_default();
        if now > used {
            (used, last) = (now, Instant::now());
        }
        if used > limit {
            let what = format!("it did not end within {} s of processor time", limit.as_secs());
            return Err(Failure::failed(what));
        }
        if last.elapsed() > stall {
            return Err(Failure::failed("it did not end: it waits for something that never comes"));
        }
        std::thread::sleep(TICK);
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is still worth showing.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn shown(text: &str) -> String {
    last_lines(&printable(text), LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_hangs_is_ended() {
        let boot = Boot::new("i".into(), "b".into(), MEMORY, 1);
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hangs");
        std::fs::write(&program, "#!/bin/sh\necho alive\nwhile :; do :; done\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let failure = play(&boot, &program, Duration::from_millis(50)).unwrap_err();
        assert!(failure.full().contains("processor time") && failure.full().contains("alive"));
    }

    #[test]
    fn a_machine_that_waits_for_nothing_is_noticed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let failure = wait(&mut child, Duration::from_secs(60), Duration::from_millis(200)).unwrap_err();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(failure.to_string().contains("never comes"), "{failure}");
    }
}
