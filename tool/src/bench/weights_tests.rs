// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the model of costs, and the fit behind the one in `bench/weights/seeds-arm64.toml`.

use super::*;

const SHIPPED: &str = include_str!("../../../bench/weights/seeds-arm64.toml");
/// What the known cycles can tell apart: each group of classes has one weight.
const GROUPS: [&[&str]; 3] = [
    &["instructions"],
    &["hardware_reads", "hardware_writes", "exception_entries", "exception_returns", "isb", "dsb", "dmb"],
    &["irqchip_reads", "irqchip_writes"],
];

fn refused(text: &str) -> String {
    let failure = Weights::parse(text).expect_err("it must be refused");
    format!("{} | {failure}", failure.full())
}

fn model(class: &str, cycles: &str) -> String {
    format!(
        "name = \"m\"\nisa = \"arm64\"\ncpu = \"none\"\nsource = \"a test\"\n\
         [class.{class}]\ncycles = {cycles}\nsource = \"a test\"\n"
    )
}

#[test]
fn wrong_models_are_refused_and_say_why() {
    assert!(Weights::parse(&model("isb", "12.5")).is_ok());
    assert!(refused(&model("hardware_read", "1")).contains("hardware_reads"), "it suggests the right name");
    for wrong in ["-1", "nan", "inf", "-inf"] {
        assert!(refused(&model("isb", wrong)).contains("the cycles of `isb`"), "{wrong}");
    }
    assert!(refused(&model("isb", "\"a\"")).contains("no model"));
    assert!(refused(&model("isb", "1").replace("source = \"a test\"\n[", "[")).contains("source"));
    let unsourced = model("isb", "1") + "[class.dsb]\ncycles = 1\nsource = \" \"\n";
    assert!(refused(&unsourced).contains("class `dsb` has no source"));
    assert!(refused(&(model("isb", "1") + "[clas.dsb]\ncycles = 1\n")).contains("clas"));
    let observation =
        "[[observation]]\nrow = \"r\"\ncycles = 1\nsource = \"s\"\nfitted = true\ncounts = { mrs = 1 }\n";
    assert!(refused(&(model("isb", "1") + observation)).contains("no class `mrs`"));
}

#[test]
fn only_counted_rows_are_estimated() {
    let text = include_str!("../../tests/data/bench.json");
    let mut document = Document::parse(text).unwrap();
    document.rows[1].classes.clear();
    let weights =
        Weights::parse(&(model("isb", "10") + "[class.instructions]\ncycles = 0.5\nsource = \"s\"\n"));
    weights.unwrap().apply(&mut document).unwrap();
    assert_eq!(document.rows[0].cycles.as_ref().unwrap().total, 24.0);
    assert_eq!(document.rows[1].cycles, None, "its operations are unknown");
    let kvm = document.figure("kvm-vhe", "null-hypercall").unwrap().cycles.as_ref().unwrap();
    assert_eq!((kvm.by_class["isb"], kvm.by_class["instructions"], kvm.total), (30.0, 682.0, 712.0));
    assert_eq!(document.weights.as_ref().map(|used| used.name.as_str()), Some("m"));
    document.isa = "x86_64".to_owned();
    assert!(
        Weights::parse(&model("isb", "1")).unwrap().apply(&mut document).is_err(),
        "another architecture"
    );
}

/// Solves the normal equations of least squares, in which each observation counts by its relative error.
fn fit(observations: &[&Observation]) -> [f64; 3] {
    let mut equations = [[0.0; 4]; 3];
    for observation in observations {
        let counts = GROUPS.map(|group| {
            group.iter().filter_map(|class| observation.counts.get(*class)).sum::<f64>() / observation.cycles
        });
        for (equation, own) in equations.iter_mut().zip(counts) {
            for (term, other) in equation.iter_mut().zip(counts.into_iter().chain([1.0])) {
                *term += own * other;
            }
        }
    }
    for pivot in 0..3 {
        let by = equations[pivot][pivot];
        assert!(by.abs() > 1e-12, "the observations do not tell the groups apart");
        equations[pivot] = equations[pivot].map(|term| term / by);
        let row = equations[pivot];
        for (_, other) in equations.iter_mut().enumerate().filter(|(index, _)| *index != pivot) {
            let times = other[pivot];
            *other = std::array::from_fn(|term| other[term] - times * row[term]);
        }
    }
    equations.map(|equation| equation[3])
}

#[test]
fn the_shipped_model_is_the_fit_of_its_observations() {
    let weights = Weights::parse(SHIPPED).unwrap();
    let fitted: Vec<&Observation> = weights.observation.iter().filter(|known| known.fitted).collect();
    assert!(fitted.len() > GROUPS.len(), "a fit needs more observations than weights");
    let expected = fit(&fitted);
    let mut classes = 0;
    for (group, cycles) in GROUPS.iter().zip(expected) {
        for class in *group {
            let shipped = weights.class[*class].cycles;
            assert!((shipped - cycles).abs() < 0.006, "{class} is {shipped}, the fit says {cycles:.4}");
            classes += 1;
        }
    }
    assert_eq!(weights.class.len(), classes, "every shipped weight comes from the fit");
}

#[test]
fn the_stated_residuals_are_true() {
    let weights = Weights::parse(SHIPPED).unwrap();
    let off = |known: &Observation| {
        let model: f64 = weights.by_class(&known.counts).values().sum();
        (model / known.cycles - 1.0).abs() * 100.0
    };
    let worst = |fitted: bool| {
        let known = weights.observation.iter().filter(|known| known.fitted == fitted);
        known.map(off).fold(0.0, f64::max).round()
    };
    let documentation = include_str!("../../../docs/src/weights.md");
    for (fitted, sentence) in
        [(true, "fitted rows are off by at most"), (false, "not fitted are off by up to")]
    {
        let expected = format!("{sentence} {} %", worst(fitted));
        assert!(documentation.contains(&expected), "docs/src/weights.md should say: {expected}");
    }
}

/// The meter is a plugin that cannot be linked with; its source says what it counts.
#[test]
fn the_classes_are_the_meters() {
    let source = include_str!("../../../meter/src/classify/mod.rs");
    let (_, list) = source.split_once("\nclasses! {\n").unwrap();
    let (list, _) = list.split_once("\n}\n").unwrap();
    let name = |line: &'static str| line.split_once(" = \"")?.1.strip_suffix("\",");
    let names: Vec<&str> = list.lines().filter_map(name).collect();
    assert_eq!(names, CLASSES);
}
