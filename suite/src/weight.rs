// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor adds to a whole boot of Linux: instructions from power-on over the shell to power-off,
//! with and without it, on the same QEMU, counted by the meter. And what its own start takes on larger machines.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::machine;
use turnstile::meter::Options;
use turnstile::meter::reading::{Reading, Total};
use turnstile::qemu::Boot;
use turnstile::setup::debian::Debian;
use turnstile::setup::images;

/// The most that a boot may take on arm64, in percent of what it takes without a hypervisor.
const LIMIT: u64 = 104;
/// The most instructions outside the guest in a boot on AMD64, where a boot without a hypervisor goes through firmware.
const LIMIT_OUTSIDE: u64 = 2_500_000;
/// Processor time is what hangs cost; this is only to end one.
const PATIENCE: Duration = Duration::from_secs(600);
const MEMORY: u64 = 512 << 20;
const CPUS: u64 = 4;
const CMDLINE: &str = "quiet turnstile.run=poweroff";

/// Boots Debian's Linux with four CPUs with and without the hypervisor, and compares.
///
/// # Errors
/// Says by how much it is too heavy, or what went wrong.
pub fn compare(layout: &Layout, program: &Path, debian: Debian) -> Result<(), String> {
    let mut without = Boot::new(debian.kernel, debian.initrd, MEMORY, CPUS);
    without.virtualization = false;
    without.append = CMDLINE.to_owned();
    let all = Options { total: true, ..Options::default() };
    let with = count(layout, program, hosted(layout, Isa::Arm64)?, "with", &all)?.outside;
    let without = count(layout, program, without, "without", &all)?.outside;
    let percent = with * 100 / without.max(1);
    if percent > LIMIT {
        return Err(format!(
            "{with} instructions with the hypervisor, {without} without: {percent} %, at most {LIMIT} %"
        ));
    }
    Ok(())
}

/// Boots Debian's Linux with four CPUs on a PC, and looks at what is outside the guest: the hypervisor, its start and its loading.
///
/// # Errors
/// Says by how much it is too heavy, or what went wrong.
pub fn outside(layout: &Layout, program: &Path) -> Result<(), String> {
    let total = count(layout, program, hosted(layout, Isa::X86_64)?, "outside", &Options::default())?;
    if total.outside > LIMIT_OUTSIDE {
        return Err(format!(
            "{} instructions outside the guest in {} visits, at most {LIMIT_OUTSIDE}; {} inside",
            total.outside, total.visits, total.guest
        ));
    }
    Ok(())
}

/// The most instructions of the hypervisor's start that another CPU may add, all CPUs together: to be found, set up and woken.
const FOR_A_CPU: u64 = 60_000;
/// The most that another GiB of the machine's memory may add: on arm64 it is not mapped at all, on AMD64 by 512 entries.
const fn for_a_gib(isa: Isa) -> u64 {
    match isa {
        Isa::Arm64 => 2_000,
        Isa::X86_64 | Isa::Power64 => 10_000,
    }
}

/// Starts the hypervisor with one and with more CPUs, and with more memory, and compares: each CPU adds the same, and memory
/// little.
///
/// # Errors
/// Says what grows too much, or what went wrong.
pub fn boots(layout: &Layout, program: &Path, isa: Isa) -> Result<(), String> {
    let start = |cpus: u64, gib: u64| {
        let text = format!(
            "[machine]\nisa = \"{isa}\"\ncpus = {cpus}\nmemory = \"{gib}GiB\"\n[[vm]]\nname = \"one\"\n\
             kernel = \"guest:{}\"\nmemory = \"16MiB\"\ncpus = [{}]\ncmdline = \"iterations=1 row=null-hypercall\"\n",
            if isa == Isa::Arm64 { "null-hypercall" } else { "measure" },
            cpus - 1
        );
        let (boot, _) = machine::prepare_text(layout, "flat", &text).map_err(|failure| failure.full())?;
        let begin = images::entry(layout, isa, &[]).map_err(|failure| failure.full())?;
        let options = Options { boot: Some(begin), ..Options::default() };
        match count(layout, program, boot, "flat", &options)?.boot {
            0 => Err("the meter has not seen the hypervisor's first instruction".to_owned()),
            count => Ok(count),
        }
    };
    let (one, few, many, large) = (start(1, 1)?, start(4, 1)?, start(16, 1)?, start(1, 4)?);
    let (cpu, next) = (few.saturating_sub(one) / 3, many.saturating_sub(few) / 12);
    let gib = large.saturating_sub(one) / 3;
    let counts = format!(
        "{one} instructions with a CPU and 1 GiB, {few} with four CPUs, {many} with 16, {large} with 4 GiB"
    );
    if cpu.max(next) > FOR_A_CPU || next > cpu + cpu / 4 {
        return Err(format!(
            "{counts}: {cpu} for each of the first CPUs, {next} for others, at most {FOR_A_CPU}"
        ));
    }
    let most = for_a_gib(isa);
    if gib > most {
        return Err(format!("{counts}: {gib} for each GiB, at most {most}"));
    }
    Ok(())
}

/// A machine whose only guest boots and powers off.
fn hosted(layout: &Layout, isa: Isa) -> Result<Boot, String> {
    let machine = if isa == Isa::Arm64 { String::new() } else { format!("[machine]\nisa = \"{isa}\"\n") };
    let text = format!(
        "{machine}[[vm]]\nname = \"linux\"\nkernel = \"debian:linux\"\ninitrd = \"debian:busybox\"\nvcpus = {CPUS}\n\
         memory = \"{}MiB\"\ncmdline = \"{CMDLINE}\"\n",
        MEMORY >> 20
    );
    let (boot, _) = machine::prepare_text(layout, "weight", &text).map_err(|failure| failure.full())?;
    Ok(boot)
}

/// Runs QEMU with the meter until it ends by itself, and returns what the meter counted.
fn count(
    layout: &Layout,
    program: &Path,
    mut boot: Boot,
    name: &str,
    options: &Options,
) -> Result<Total, String> {
    let meter = images::meter(layout).map_err(|failure| failure.full())?;
    let out = layout.bundles().join(format!("weight-{name}.json"));
    boot.counted = true;
    boot.extra.extend([OsString::from("-plugin"), options.argument(&meter, &out)]);
    let mut child = std::process::Command::new(program)
        .args(boot.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let begin = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the boot {name} the hypervisor does not end"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let reading = Reading::load(&out).map_err(|failure| failure.full())?;
    Ok(reading.total)
}
