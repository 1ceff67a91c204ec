// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the other hypervisors have in common: a machine with plain text on its serial line that runs to its end
//! without a user, and a guest's report somewhere in that text.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Outcome, Run};
use crate::bench::measure::Report;
use crate::failure::{Context, Failure, Result};
use crate::meter::Options;
use crate::meter::reading::Reading;
use crate::qemu::Boot;
use crate::session::cpu_time;
use crate::setup::last_lines;

/// The machine's memory in bytes.
pub const MEMORY: u64 = 1 << 30;
/// Processor time of QEMU for booting, in seconds, and iterations that surely fit into one more second.
const BOOT_SECONDS: u64 = 120;
const ITERATIONS_PER_SECOND: u64 = 1000;
/// A machine with nothing more to wait for uses no processor time; a busy host gives it some within this time.
const STALL: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(20);
/// How many lines of what was said belong to a failure.
const LINES: usize = 25;

/// A folder of one run's own.
pub fn folder(run: &Run<'_>, subject: &str) -> Result<PathBuf> {
    let folder = run.layout.bundles().join(format!("bench-{subject}-{}", run.row.name));
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Runs a machine with the meter to its end. `guest` picks the guest's text out of the serial line's.
pub fn measure(
    run: &Run<'_>,
    mut boot: Boot,
    folder: &Path,
    version: String,
    guest: impl Fn(&str) -> std::result::Result<String, String>,
) -> Result<Outcome> {
    let out = folder.join("reading.json");
    let _ = std::fs::remove_file(&out);
    boot.counted = true;
    let options = Options { trace: run.trace, ..Options::default() };
    boot.extra.extend(["-plugin".into(), options.argument(&run.meter, &out)]);
    let limit = Duration::from_secs(BOOT_SECONDS + run.iterations / ITERATIONS_PER_SECOND);
    let name = |failure: Failure| failure.context_line(&format!("{} on {version}", run.row.name));
    let said = play(&boot, &run.qemu.path, limit).map_err(name)?;
    let report = guest(&said)
        .and_then(|text| report(run.row.name, run.iterations, &text))
        .map_err(|what| name(Failure::failed(what).details(shown(&said))))?;
    Ok(Outcome { report, reading: Reading::load(&out).map_err(name)?, version })
}

/// Finds a row's report in what its guest said.
fn report(row: &str, iterations: u64, text: &str) -> std::result::Result<Report, String> {
    let mut lines = text.lines().map(str::trim);
    if let Some(error) = lines.clone().find_map(|line| line.strip_prefix("@error ")) {
        return Err(format!("it reports: {}", printable(error)));
    }
    let report = lines.find_map(Report::parse).ok_or("it ended without its @bench line")?;
    let report = report.map_err(|what| printable(&what))?;
    if report.row != row || report.iterations != iterations {
        return Err(format!("it measured {} {} times", printable(&report.row), report.iterations));
    }
    Ok(report)
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
        let now = cpu_time(child.id()).unwrap_or_default();
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

/// Text of a machine without what a terminal would take for commands.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "[ 1.0] noise\r\n@bench row=io-user iterations=64 ticks=640 empty=64 frequency=1000000000\r\n";

    #[test]
    fn a_report_is_found_among_a_kernels_messages() {
        let report = report("io-user", 64, LINE).unwrap();
        assert_eq!(report.instructions(), 9.0);
    }

    #[test]
    fn what_is_not_the_rows_report_is_refused() {
        assert!(report("self-sgi", 64, LINE).unwrap_err().contains("io-user"));
        assert!(report("io-user", 65, LINE).unwrap_err().contains("64 times"));
        assert!(report("io-user", 64, "\x1b[2J@bench row=").unwrap_err().contains("without its @bench"));
        let both = format!("{LINE}@error vCPU 0: \x1b[31mno\n");
        assert_eq!(report("io-user", 64, &both).unwrap_err(), "it reports: vCPU 0: [31mno");
    }

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
