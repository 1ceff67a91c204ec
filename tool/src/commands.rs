// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands `check`, `build` and `run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use turnstile_bundle::{Feature, Schedule};

use crate::card;
use crate::cli;
use crate::config::images::{self, Absent};
use crate::config::problem::did_you_mean;
use crate::config::{self, Board, Config, Loaded, Problem, Service, show_size};
use crate::console::{self, Control, Stay};
use crate::control::detach::{self, Background};
use crate::control::find;
use crate::failure::{Context, Failure, Kind, Result};
use crate::isa::Isa;
use crate::layout::{self, Layout, write_atomically};
use crate::machine::{self, stem};
use crate::ports::Named;
use crate::qemu::{Boot, Forward};
use crate::{prose, setup, ui};

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
    if options.json {
        return check_json(layout, options);
    }
    let loaded = config::load(layout, &options.file)?;
    let problems = problems_of(layout, &loaded)?;
    if !problems.is_empty() {
        return Err(loaded.report(&problems));
    }
    println!("{}: ok", options.file.display());
    for vm in loaded.accept()?.vms.iter().map(describe) {
        println!("{}", prose::behind("  ", &vm, prose::within(ui::terminal_width())));
    }
    Ok(())
}

/// The same for programs: an object in every case, also where the file cannot be read.
fn check_json(layout: &Layout, options: &cli::Check) -> Result<()> {
    let checked = config::load(layout, &options.file).and_then(|loaded| {
        let problems = problems_of(layout, &loaded)?;
        Ok((loaded, problems))
    });
    match checked {
        Ok((loaded, problems)) => {
            print_json(&report(&loaded, &problems))?;
            if problems.is_empty() { Ok(()) } else { Err(Failure::reported(Kind::Usage)) }
        }
        Err(failure) => {
            let problems = vec![config::problem::Located::of(&failure)];
            let file = options.file.display().to_string();
            print_json(&Report { schema: 1, file, ok: false, problems, vms: Vec::new() })?;
            Err(failure.silent())
        }
    }
}

fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context(|| "cannot write the report".into())?;
    println!("{text}");
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
        Some(folder) if folder.exists() && !folder.is_dir() => {
            let what = format!("{} is not a folder", folder.display());
            return Err(Failure::usage(what).help("--output names the folder that gets the files"));
        }
        Some(folder) => folder.clone(),
        None => layout.machines().join(stem(&options.file)),
    };
    let boot = machine::assemble(layout, &loaded, &folder, options.image.as_deref())?;
    let built = match boot.board {
        Board::Rpi4 if options.boot_times => {
            let what = "--boot-times is not for cards, whose hypervisor has a command line in a file";
            return Err(Failure::usage(what).help("add `boot-times` to the card's cmdline.txt"));
        }
        Board::Rpi4 => build_card(&boot, &folder)?,
        _ => build_files(boot, &folder, options.boot_times)?,
    };
    if options.json { print_json(&built) } else { built.print() }
}

/// What `build` has written, and what `build --json` says of it.
#[derive(Serialize)]
struct Built {
    schema: u32,
    isa: &'static str,
    board: String,
    files: Vec<BuiltFile>,
    /// The QEMU command that boots the files with consoles in plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip)]
    advice: &'static str,
}

#[derive(Serialize)]
struct BuiltFile {
    path: String,
    bytes: u64,
}

impl Built {
    fn new<'a>(board: Board, files: impl IntoIterator<Item = &'a PathBuf>, advice: &'static str) -> Self {
        let file = |path: &PathBuf| BuiltFile {
            path: Layout::shown(path),
            bytes: fs::metadata(path).map_or(0, |metadata| metadata.len()),
        };
        let files = files.into_iter().map(file).collect();
        Built { schema: 1, isa: board.isa().name(), board: board.to_string(), files, command: None, advice }
    }

    fn print(&self) -> Result<()> {
        for BuiltFile { path, bytes } in &self.files {
            println!("{path} ({})", show_size(*bytes));
        }
        if let Some(command) = &self.command {
            println!("\nTo boot them with plain-text consoles:\n\n{command}");
        }
        println!("");
        ui::say(self.advice);
        Ok(())
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

fn build_files(mut boot: Boot, folder: &Path, boot_times: bool) -> Result<Built> {
    let isa = boot.board.isa();
    let image = folder.join(format!("turnstile-{isa}.{}", isa.image_extension()));
    fs::copy(&boot.image, &image).context(|| format!("cannot write {}", image.display()))?;
    boot.image = image;
    // To a person at a plain terminal, frames are noise.
    boot.append = if boot_times { BOOT_TIMES.to_owned() } else { String::new() };
    let mut files = vec![boot.image.clone(), boot.bundle.clone().unwrap_or_default()];
    if isa == Isa::X86_64 {
        let menu = folder.join("grub.cfg");
        write_atomically(&menu, GRUB.as_bytes())?;
        files.push(menu);
    }
    let advice = match isa {
        Isa::Arm64 => "Other boot loaders must pass the bundle as the initial RAM disk.",
        Isa::Power64 => "skiboot's boot loader, Petitboot, passes the bundle as the initial RAM disk.",
        Isa::X86_64 => "GRUB passes the bundle as a module: grub.cfg has the menu entry.",
    };
    let command = Some(boot.shown(Path::new(isa.emulator())));
    Ok(Built { command, ..Built::new(boot.board, &files, advice) })
}

fn build_card(boot: &Boot, folder: &Path) -> Result<Built> {
    let bundle = boot.bundle.clone().unwrap_or_default();
    let card = card::write(folder, &boot.image, &bundle)?;
    // On the card it has another name.
    fs::remove_file(&bundle).context(|| format!("cannot remove {}", bundle.display()))?;
    let files = [&card.image, &card.bundle].into_iter().chain(&card.texts);
    let advice = "Copy these files to a card with the board's firmware: README.txt says how.";
    Ok(Built::new(boot.board, files, advice))
}

/// Checks that forwards lead somewhere, each from a port of its own.
fn check_forwards(config: &Config, forwards: &[Forward]) -> Result<()> {
    if !forwards.is_empty() && !config.services.iter().any(leads_to_the_first_card) {
        let failure =
            Failure::usage("no network of this machine has the uplink net0, to which --forward leads");
        return Err(failure.help("write uplink = \"net0\" in a [[network]]"));
    }
    let is_taken = |(at, forward): &(usize, &Forward)| {
        forwards.iter().take(*at).any(|earlier| earlier.host == forward.host)
    };
    let Some((_, twice)) = forwards.iter().enumerate().find(is_taken) else { return Ok(()) };
    let failure = Failure::usage(format!("two --forward are of port {} of this computer", twice.host));
    Err(failure.help("it leads to one port of a guest: give the other one another"))
}

/// `run`: boots a machine and attaches its consoles.
pub fn run(layout: &Layout, options: &cli::Run) -> Result<()> {
    if options.detach && !options.detached {
        return detach::detach();
    }
    let mut loaded = config::load(layout, &options.file)?;
    if options.statistics || options.metrics.is_some() {
        loaded.keep_statistics();
    }
    let config: &Config = loaded.accept()?;
    let kills = kills(config, options)?;
    check_forwards(config, &options.forward)?;
    machine::check_hypervisor(options.image.as_deref(), config.machine.board.isa())?;
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
    boot.forwards = options.forward.clone();
    boot.extra = options.qemu_args.clone();
    if let Some(port) = options.gdb {
        crate::ui::note(&format!(
            "waiting for a debugger: gdb-multiarch {} -ex 'target remote localhost:{port}'",
            Layout::shown(&setup::images::program(layout, boot.board.isa()))
        ));
    }
    let names = config.vms.iter().map(|vm| vm.name.value.clone()).collect();
    let stay = Stay {
        style: if options.json { console::Style::Json } else { console::Style::Normal },
        limit: options.timeout,
        metrics: options.metrics,
        kills,
    };
    let (folder, name) = (find::folder(layout), stem(&options.file));
    // What has to be built is built: from here on nobody waits, and the terminal's keys are not for this process.
    let background = options.detached.then(|| Background::enter(&folder, &name)).transpose()?;
    let ports: Vec<Named> = config.vms.iter().map(named).collect();
    let control = Control { folder: &folder, name: &name, background, log: &options.log, ports: &ports };
    let ended = console::run(&boot, &qemu.path, names, stay, (!options.plain).then_some(control));
    layout::remove_bundles(layout);
    if let Some(background) = background {
        background.leave_words(&folder, &name, &ended);
    }
    ended
}

/// Returns the names of a VM and its ports.
fn named(vm: &config::Vm) -> Named {
    Named { vm: vm.name.value.clone(), ports: vm.ports.iter().map(|port| port.value.clone()).collect() }
}

/// Says whether a service drives the machine's first network card.
fn leads_to_the_first_card(service: &Service) -> bool {
    service.uplink.is_some_and(|uplink| uplink.card == 0)
}

/// The services that are to be killed by their numbers, and when.
fn kills(config: &Config, options: &cli::Run) -> Result<Vec<(Duration, u8)>> {
    let own = config.services.iter().filter(|service| service.joins.is_none());
    let names: Vec<&str> = own.map(|service| service.name.value.as_str()).collect();
    let number = |kill: &cli::Kill| {
        let number = names.iter().position(|name| *name == kill.service);
        let number = number.ok_or_else(|| {
            let failure = Failure::usage(format!("there is no service `{}` in this machine", kill.service));
            failure.help(did_you_mean(&kill.service, &names))
        })?;
        Ok((kill.after, number as u8))
    };
    options.kill_service.iter().map(number).collect()
}
