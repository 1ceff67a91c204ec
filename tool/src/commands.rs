// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands `check`, `build` and `run`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use turnstile_bundle::{Feature, Schedule};

use crate::card;
use crate::cli;
use crate::config::images::{self, Absent};
use crate::config::{self, Board, Config, Loaded, Problem, show_size};
use crate::console;
use crate::failure::{Context, Failure, Kind, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::machine::{self, stem};
use crate::qemu::Boot;
use crate::setup;
use crate::top;

/// What `check --json` writes.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    file: String,
    ok: bool,
    problems: Vec<config::problem::Located<'a>>,
    vms: Vec<VmReport<'a>>,
}

#[derive(Serialize)]
struct VmReport<'a> {
    name: &'a str,
    vcpus: usize,
    cpus: &'a [u16],
    schedule: &'static str,
    memory: u64,
    machine: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    gic: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    apic: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paravirt: Option<Vec<&'static str>>,
}

/// `check`: says everything that is wrong with a configuration.
pub fn check(layout: &Layout, options: &cli::Check) -> Result<()> {
    let loaded = config::load(layout, &options.file)?;
    let problems = problems_of(layout, &loaded)?;
    if options.json {
        let report = report(&loaded, &problems);
        let text = serde_json::to_string_pretty(&report).context(|| "cannot write the report".into())?;
        println!("{text}");
        return if problems.is_empty() { Ok(()) } else { Err(Failure::reported(Kind::Usage)) };
    }
    if !problems.is_empty() {
        return Err(loaded.report(&problems));
    }
    println!("{}: ok", options.file.display());
    for vm in loaded.accept()?.vms.iter().map(describe) {
        println!("  {vm}");
    }
    Ok(())
}

fn problems_of(layout: &Layout, loaded: &Loaded) -> Result<Vec<Problem>> {
    Ok(match &loaded.config {
        Err(problems) => problems.clone(),
        // What is not downloaded or built yet is not downloaded or built for a check.
        Ok(config) => images::load(layout, config, Absent::Skip)?.err().unwrap_or_default(),
    })
}

fn report<'a>(loaded: &'a Loaded, problems: &'a [Problem]) -> Report<'a> {
    let vms = loaded.config.as_ref().map(|config| config.vms.as_slice()).unwrap_or_default();
    Report {
        schema: 1,
        file: loaded.path.display().to_string(),
        ok: problems.is_empty(),
        problems: problems.iter().map(|problem| problem.located(&loaded.text)).collect(),
        vms: vms
            .iter()
            .map(|vm| VmReport {
                name: &vm.name.value,
                vcpus: vm.vcpus,
                cpus: &vm.cpus,
                schedule: vm.schedule.name(),
                memory: vm.memory.value,
                machine: vm.machine.name(),
                gic: vm.machine.arm64().map(|arm64| arm64.gic.name()),
                apic: vm.machine.pc().map(|pc| pc.apic.name()),
                paravirt: vm.machine.pc().map(|pc| pc.paravirt.iter().map(Feature::name).collect()),
            })
            .collect(),
    }
}

fn describe(vm: &config::Vm) -> String {
    let cpus: Vec<String> = vm.cpus.iter().map(u16::to_string).collect();
    let noun = if vm.vcpus == 1 { "vCPU" } else { "vCPUs" };
    let plural = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    let shared = match vm.schedule {
        Schedule::Pinned => "",
        Schedule::Shared(_) => "shared ",
    };
    format!(
        "{}: {} {noun} on {shared}physical {plural} {}, {}, machine {}",
        vm.name.value,
        vm.vcpus,
        cpus.join(" "),
        show_size(vm.memory.value),
        vm.machine
    )
}

/// `build`: writes the image and the bundle, and says how to boot them.
pub fn build(layout: &Layout, options: &cli::Build) -> Result<()> {
    let loaded = config::load_for(layout, &options.file, options.board)?;
    let folder = match &options.output {
        Some(folder) => folder.clone(),
        None => layout.machines().join(stem(&options.file)),
    };
    let boot = machine::assemble(layout, &loaded, &folder, options.image.as_deref())?;
    match boot.board {
        Board::Rpi4 if options.boot_times => Err(Failure::usage(
            "--boot-times is not for cards, whose hypervisor has a command line in a file",
        )
        .help("add `boot-times` to the card's cmdline.txt")),
        Board::Rpi4 => build_card(&boot, &folder),
        _ => build_files(boot, &folder, options.boot_times),
    }
}

/// An entry for GRUB's menu, with the files in the boot partition's folder `turnstile`.
const GRUB: &str = "\
menuentry \"Turnstile\" {
    insmod multiboot2
    multiboot2 /turnstile/turnstile-x86_64.elf
    module2 /turnstile/bundle
}
";

/// The word of the hypervisor's command line by which it says what its start takes.
const BOOT_TIMES: &str = "boot-times";

fn build_files(mut boot: Boot, folder: &Path, boot_times: bool) -> Result<()> {
    let isa = boot.board.isa();
    let image = folder.join(format!("turnstile-{isa}.{}", isa.image_extension()));
    fs::copy(&boot.image, &image).context(|| format!("cannot write {}", image.display()))?;
    boot.image = image;
    // To a person at a plain terminal, frames are noise.
    boot.append = if boot_times { BOOT_TIMES.to_owned() } else { String::new() };
    let bundle = boot.bundle.clone().unwrap_or_default();
    [&boot.image, &bundle].into_iter().for_each(|file| show(file));
    if isa == Isa::X86_64 {
        let menu = folder.join("grub.cfg");
        write_atomically(&menu, GRUB.as_bytes())?;
        show(&menu);
    }
    let program = Path::new(isa.emulator());
    println!("\nTo boot them with plain-text consoles:\n\n{}\n", boot.shown(program));
    match isa {
        Isa::Arm64 => println!("Other boot loaders must pass the bundle as the initial RAM disk."),
        Isa::Power64 => {
            println!("skiboot's boot loader, Petitboot, passes the bundle as the initial RAM disk.")
        }
        Isa::X86_64 => println!("GRUB passes the bundle as a module: grub.cfg has the menu entry."),
    }
    Ok(())
}

fn build_card(boot: &Boot, folder: &Path) -> Result<()> {
    let bundle = boot.bundle.clone().unwrap_or_default();
    let card = card::write(folder, &boot.image, &bundle)?;
    // On the card it has another name.
    fs::remove_file(&bundle).context(|| format!("cannot remove {}", bundle.display()))?;
    [&card.image, &card.bundle].into_iter().chain(&card.texts).for_each(|file| show(file));
    println!("\nCopy these files to a card with the board's firmware: README.txt says how.");
    Ok(())
}

/// Prints the name and the size of a file.
fn show(file: &Path) {
    let size = fs::metadata(file).map_or(0, |metadata| metadata.len());
    println!("{} ({})", Layout::shown(file), show_size(size));
}

/// `run`: boots a machine and attaches its consoles.
pub fn run(layout: &Layout, options: &cli::Run) -> Result<()> {
    let mut loaded = config::load(layout, &options.file)?;
    if options.statistics {
        loaded.keep_statistics();
    }
    let config: &Config = loaded.accept()?;
    let qemu = setup::qemu::ensure(layout, config.machine.board.isa(), options.qemu.program.as_deref())?;
    let folder = layout.bundles().join(format!("run-{}", stem(&options.file)));
    let mut boot = machine::prepare(layout, &loaded, &folder, options.image.as_deref())?;
    if options.plain {
        boot.append = String::new();
    }
    if options.boot_times {
        boot.append = format!("{} {BOOT_TIMES}", boot.append).trim_start().to_owned();
    }
    boot.gdb = options.gdb;
    boot.extra = options.qemu_args.clone();
    if let Some(port) = options.gdb {
        crate::ui::note(&format!(
            "waiting for a debugger: gdb-multiarch {} -ex 'target remote localhost:{port}'",
            Layout::shown(&setup::images::program(layout, boot.board.isa()))
        ));
    }
    let names = config.vms.iter().map(|vm| vm.name.value.clone()).collect();
    let style = if options.json { console::Style::Json } else { console::Style::Normal };
    let limit = options.timeout.map(Duration::from_secs);
    let (sessions, name) = (top::socket::folder(layout), stem(&options.file));
    let offer = (!options.plain).then_some((sessions.as_path(), name.as_str()));
    console::run(&boot, &qemu.path, names, style, limit, offer)
}
