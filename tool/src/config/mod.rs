// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine described by one TOML file: read, checked, and turned into what the bundle needs.
//!
//! Checking goes in two steps. [`parse`] judges the text alone, so `check` and the editor's user see every
//! mistake at once; [`images::load`] reads the kernels and initrds it names and judges those.

mod board;
pub(crate) mod contents;
mod controllers;
mod device;
mod disk;
pub(crate) mod disk_file;
mod disk_format;
mod disk_image;
pub(crate) mod file;
mod flat;
mod functions;
mod guard;
mod guest;
pub(crate) mod images;
mod machine;
mod network;
mod network_card;
mod plan;
mod pool;
mod port;
pub(crate) mod problem;
mod qcow2;
mod rate;
mod read;
mod schedule;
mod service;
mod size;
#[cfg(test)]
mod tests;
mod vm;

use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use turnstile_bundle::{DriveKind, MAX_VMS, Mapping, OnCrash, PortSpec, Schedule};

use crate::failure::{Failure, Kind, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::ui;
pub use board::Board;
pub use device::Device;
pub use disk::{Disk, DiskSource};
use file::Refused;
pub use machine::Machine;
use network::Network;
pub use network_card::NetworkCard;
pub use port::Port;
pub use problem::Problem;
pub use read::At;
use read::Reader;
pub use service::{Program, Service};
pub use size::{parse_size, show_size};

/// The longest configuration that is read: no machine of a few VMs takes nearly as much to describe.
const MAX_TEXT: u64 = 1 << 20;
/// So many problems are shown of a file that is perhaps no configuration at all.
const MOST_SHOWN: usize = 25;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The physical machine.
    pub machine: Machine,
    /// The virtual machines, at least one.
    pub vms: Vec<Vm>,
    /// What serves them from outside the hypervisor.
    pub services: Vec<Service>,
    /// The disks that VMs have.
    pub disks: Vec<Disk>,
    /// The bytes of the pool that VMs have memory from in common; zero if there is none.
    pub pool: u64,
    /// The ports of networks, in the order of these among the services.
    pub ports: Vec<PortSpec>,
}

impl Config {
    /// Returns which network cards the machine needs in QEMU for its networks, in the order of their numbers.
    pub fn cards(&self) -> Vec<NetworkCard> {
        let mut cards = Vec::new();
        for (uplink, card) in self.services.iter().filter_map(|service| Some((service.uplink?, service.card)))
        {
            if cards.len() <= uplink.card {
                cards.resize(uplink.card + 1, NetworkCard::default());
            }
            cards[uplink.card] = card;
        }
        cards
    }

    /// Says whether the machine must have an IOMMU: something that a service drives is not trusted.
    pub fn iommu(&self) -> bool {
        let mut uplinks = self.services.iter().filter_map(|service| service.uplink);
        let mut devices = self.disks.iter().filter_map(|disk| disk.device.as_ref());
        uplinks.any(|uplink| !uplink.trusted) || devices.any(|device| !device.value.drive.trusted)
    }

    /// Returns the disk that says what QEMU has behind a controller, and whether all disks of that are only read; `None` if no disk is behind it.
    pub fn behind(&self, device: &Device) -> Option<(&Disk, bool)> {
        let disk = controllers::speaker(&self.disks, device)?;
        let device = &disk.device.as_ref()?.value;
        Some((disk, disk::beside(&self.disks, device).all(|disk| disk.read_only)))
    }

    /// Returns how many disk controllers of a kind the machine needs for its disks.
    pub fn controllers(&self, kind: DriveKind) -> usize {
        controllers::controllers(&self.disks, kind)
    }
}

/// One virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its name: 1 to 31 lower-case letters, digits and hyphens.
    pub name: At<String>,
    /// The kernel.
    pub kernel: At<Source>,
    /// The initial RAM disk.
    pub initrd: Option<At<Source>>,
    /// The kernel's command line.
    pub cmdline: String,
    /// The number of vCPUs.
    pub vcpus: usize,
    /// The physical CPUs that it runs on: pinned, that of each vCPU.
    pub cpus: Vec<u16>,
    /// Whether it has them for itself.
    pub schedule: Schedule,
    /// Memory in bytes.
    pub memory: At<u64>,
    /// When that memory gets its translations.
    pub mapping: Mapping,
    /// The machine that the guest sees.
    pub machine: turnstile_bundle::Machine,
    /// Where it is said where the kernel goes.
    pub places: flat::Places,
    /// What happens when the guest crashes.
    pub on_crash: OnCrash,
    /// Whether the hypervisor keeps statistics of its exits.
    pub statistics: bool,
    /// The names of its disks.
    pub disks: Vec<At<String>>,
    /// What it says of its ports of networks.
    pub networks: Vec<Port>,
    /// Where it says that it has an entropy device, if it has one.
    pub entropy: Option<Range<usize>>,
    /// Where it says that it has a balloon, if it has one.
    pub balloon: Option<Range<usize>>,
    /// Where it says that its console is a virtio console, if it is one.
    pub console: Option<Range<usize>>,
    /// The names of its ports.
    pub ports: Vec<At<String>>,
}

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// `debian:linux` and others, from the cache.
    Debian(DebianPart),
    /// `guest:NAME`, built from `guests/`.
    Guest(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::File(path) => return path.display().fmt(f),
            Source::Guest(name) => return write!(f, "guest:{name}"),
            Source::Debian(DebianPart::Linux) => "debian:linux",
            Source::Debian(DebianPart::Standard) => "debian:linux-standard",
            Source::Debian(DebianPart::SmallPages) => "debian:linux-4k",
            Source::Debian(DebianPart::Busybox) => "debian:busybox",
            Source::Debian(DebianPart::UBoot) => "debian:u-boot",
        })
    }
}

/// A part of the Debian guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebianPart {
    /// The kernel for virtual machines.
    Linux,
    /// The kernel for any machine.
    Standard,
    /// POWER's kernel with pages of 4 KiB.
    SmallPages,
    /// U-Boot, in the place of a kernel.
    UBoot,
    /// The initramfs.
    Busybox,
}

/// A configuration file and what is in it.
#[derive(Debug)]
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    /// Its text, for messages about it.
    pub text: String,
    /// What it says, or what is wrong with it.
    pub config: std::result::Result<Config, Vec<Problem>>,
}

/// What [`parse`] must know beside the text.
pub struct Surroundings<'a> {
    /// Relative paths start here.
    pub folder: &'a Path,
    /// The guests that `guest:NAME` can name, for each architecture.
    pub guests: &'a dyn Fn(Isa) -> Vec<String>,
    /// The programs of services that have a name.
    pub services: &'a [String],
    /// The board that was asked for beside the text.
    pub board: Option<Board>,
}

/// Reads and parses a file.
pub fn load(layout: &Layout, path: &Path) -> Result<Loaded> {
    load_for(layout, path, None)
}

/// The same for a board, if one was asked for.
pub fn load_for(layout: &Layout, path: &Path, board: Option<Board>) -> Result<Loaded> {
    let text = read_text(path).map_err(|what| {
        Failure::usage(what)
            .help("name a file that describes a machine; examples/ has some, such as examples/one-linux.toml")
    })?;
    let folder = folder_of(path);
    let guests = |isa| layout.guest_names(isa);
    let services = layout.service_names();
    let surroundings = Surroundings { folder: &folder, guests: &guests, services: &services, board };
    let config = parse(&text, &surroundings);
    Ok(Loaded { path: path.to_path_buf(), text, config })
}

/// Where relative paths in a file start: its folder, or the current one if its text comes through a pipe.
fn folder_of(path: &Path) -> PathBuf {
    match file::is_pipe(path) {
        true => PathBuf::new(),
        false => path.parent().unwrap_or(Path::new("")).to_path_buf(),
    }
}

/// Reads a configuration's text; the error says what the file is instead.
fn read_text(path: &Path) -> std::result::Result<String, String> {
    let shown = path.display();
    let bytes = file::read_text(path, MAX_TEXT).map_err(|refused| match refused {
        Refused::Unreadable(error) => format!("cannot read {shown}: {error}"),
        refused => format!("{shown} {refused}"),
    })?;
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not text in UTF-8"))
}

impl Loaded {
    /// Turns the statistics of all VMs on, whatever the file says.
    pub fn keep_statistics(&mut self) {
        self.config.iter_mut().flat_map(|config| &mut config.vms).for_each(|vm| vm.statistics = true);
    }

    /// The configuration; if it is wrong, all problems are printed and the failure is silent.
    pub fn accept(&self) -> Result<&Config> {
        self.config.as_ref().map_err(|problems| self.report(problems))
    }

    /// Prints problems on standard error and returns the failure for the exit code.
    pub fn report(&self, problems: &[Problem]) -> Failure {
        let file = self.path.display().to_string();
        // Nobody may be there to read it; the exit code tells all the same.
        let mut out = anstream::stderr();
        for problem in problems.iter().take(MOST_SHOWN) {
            let _ = writeln!(out, "{}\n", problem.render(&file, &self.text, true, ui::error_width()));
        }
        let count = problems.len();
        let noun = if count == 1 { "problem" } else { "problems" };
        let first = if count > MOST_SHOWN {
            format!(", of which the first {MOST_SHOWN} are shown")
        } else {
            String::new()
        };
        let _ = writeln!(out, "{file}: {count} {noun}{first}");
        Failure::reported(Kind::Usage)
    }
}

/// Parses a configuration, finding everything that is wrong with it, in the order of the file.
pub fn parse(text: &str, surroundings: &Surroundings<'_>) -> std::result::Result<Config, Vec<Problem>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<Problem> = errors.iter().map(syntax_problem).collect();
    if problems.is_empty() {
        let config = read_root(root.get_ref(), surroundings, &mut problems);
        if let (Some(config), true) = (config, problems.is_empty()) {
            return Ok(config);
        }
    }
    problems.sort_by_key(|problem| problem.span.start);
    Err(problems)
}

fn syntax_problem(error: &toml::de::Error) -> Problem {
    Problem::new(error.span().unwrap_or(0..0), error.message(), "")
}

fn read_root(
    root: &DeTable<'_>,
    surroundings: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    // The architecture decides which keys a VM has.
    let wanted = read_machine(root, surroundings, problems);
    let isa = wanted.board.isa();
    if let Some(problem) = forgotten_header(root, isa) {
        problems.push(problem);
        return None;
    }
    Reader::new(root, 0..0, &["machine", "pool", "vm", "service", "disk", "network"], &[], problems);
    let (vms, mut complete) = tables(root, "vm", "a VM", problems);
    let mut drafts = Vec::new();
    for (table, span) in vms {
        let draft = vm::read(table, span, isa, surroundings, problems);
        complete &= draft.is_some();
        drafts.extend(draft);
    }
    let (tables, sound) = tables(root, "service", "a service", problems);
    let mut services = Vec::new();
    for (table, span) in tables {
        services.extend(service::read(table, span, surroundings, problems));
    }
    let (tables, all) = self::tables(root, "disk", "a disk", problems);
    let sound = sound && all;
    let mut disks = Vec::new();
    for (table, span) in tables {
        let disk = disk::read(table, span, surroundings, problems);
        complete &= disk.is_some();
        disks.extend(disk);
    }
    controllers::share_files(&mut disks);
    let (tables, all) = self::tables(root, "network", "a network", problems);
    let sound = sound && all;
    let mut networks = Vec::new();
    for (table, span) in tables {
        let network = network::read(table, span, problems);
        complete &= network.is_some();
        networks.extend(network);
    }
    if drafts.is_empty() && complete {
        let help =
            "describe at least one: [[vm]] with name, kernel and memory; examples/one-linux.toml shows how";
        problems.push(Problem::new(0..0, "there is no VM in this file", help));
    }
    if drafts.len() > MAX_VMS {
        let span = drafts.get(MAX_VMS).map_or(0..0, |draft| draft.name.span.clone());
        let what = format!("{} VMs are more than {MAX_VMS}", drafts.len());
        problems.push(Problem::new(span, what, "put the others into another file"));
    }
    plan::names(&drafts, problems);
    let of_services = services.iter().map(service::Draft::running);
    let of_disks = disks.iter().map(|disk| (&disk.name, &disk.runs));
    let of_networks = networks.iter().map(|network| (&network.name, &network.runs));
    let own: Vec<_> = of_services
        .chain(of_disks)
        .chain(of_networks)
        .filter_map(|(name, runs)| Some((name.value.as_str(), runs.cpu.as_ref()?)))
        .collect();
    let pool = pool::read(root, problems);
    if pool.is_some() || !root.contains_key("pool") {
        pool::judge(pool.as_ref(), &drafts, problems);
    }
    let mut config = plan::finish(wanted, drafts, &own, problems).filter(|_| complete && sound)?;
    // Disks have the first slots of their VM.
    let mut all = disk::services(&disks, &config.vms, problems);
    problems.extend((0..disks.len()).filter_map(|index| controllers::misfit(&disks, &config.vms, index)));
    all.extend(services);
    all.extend(network::services(&networks, &config.vms, problems));
    // Last: what a VM has otherwise stays in its slots.
    all.extend(functions::services(&config.vms, problems));
    config.pool = pool.map_or(0, |pool| pool.value);
    config.services = service::finish(all, &config.vms, problems);
    config.ports = network::ports(&config.services, &config.vms, problems);
    problems.extend(network::no_card(&networks, config.machine.board));
    problems.extend(controllers::no_controller(&disks, &networks, config.machine.board));
    problems.extend(guard::unguarded(&networks, &disks, config.machine.board));
    config.disks = disks;
    problems.extend(pool::suits(&config));
    Some(config)
}

/// The tables of a list, with their places.
type Tables<'a> = Vec<(&'a DeTable<'a>, Range<usize>)>;

/// Returns the tables of the list `key`, and whether all of it is tables; `what` is one of them.
fn tables<'a>(
    root: &'a DeTable<'a>,
    key: &str,
    what: &str,
    problems: &mut Vec<Problem>,
) -> (Tables<'a>, bool) {
    let before = problems.len();
    let mut tables = Vec::new();
    match root.iter().find(|(name, _)| name.get_ref().as_ref() == key) {
        None => {}
        Some((_, value)) if value.get_ref().is_array() => {
            for item in value.get_ref().as_array().into_iter().flat_map(|array| array.iter()) {
                match item.get_ref() {
                    DeValue::Table(table) => tables.push((table, item.span())),
                    _ => problems.push(Problem::new(
                        item.span(),
                        format!("{what} is a table"),
                        format!("write [[{key}]] before its keys"),
                    )),
                }
            }
        }
        Some((name, _)) => {
            let help = format!("write [[{key}]], with two brackets: there may be several");
            problems.push(Problem::new(name.span(), format!("`{key}` is a list of tables"), help));
        }
    }
    (tables, problems.len() == before)
}

/// Finds keys of a VM that stand above all tables: one `[[vm]]` is missing, and everything else follows from that.
fn forgotten_header(root: &DeTable<'_>, isa: Isa) -> Option<Problem> {
    let names = vm::keys(isa);
    let is_of_vm = |key: &str| key != "machine" && names.contains(&key);
    let first = root
        .keys()
        .filter(|key| is_of_vm(key.get_ref()))
        .min_by_key(|key| key.span().start)
        .filter(|_| !root.keys().any(|key| key.get_ref() == "vm"))?;
    let what = format!("`{}` is a key of a VM, and no [[vm]] stands above it", first.get_ref());
    Some(Problem::new(first.span(), what, "write [[vm]] on a line of its own above the VM's keys"))
}

fn read_machine(
    root: &DeTable<'_>,
    surroundings: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> machine::Draft {
    let found = root.iter().find(|(key, _)| key.get_ref().as_ref() == "machine");
    match found.map(|(key, value)| (key, value.span(), value.get_ref())) {
        Some((key, _, DeValue::Table(table))) => {
            return machine::read(table, key.span(), surroundings.board, problems);
        }
        Some((_, span, _)) => problems.push(Problem::new(span, "`machine` is a table", "write [machine]")),
        None => {}
    }
    machine::Draft::of(surroundings.board.unwrap_or_default())
}
