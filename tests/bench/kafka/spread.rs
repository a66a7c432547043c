//! How figures of several rounds are put together.

/// Median and quartiles, bold where all ratios are on one side of 1.
pub(crate) fn summary(ratios: &[f64]) -> String {
    let text = format!(
        "{:.2} ({:.2}–{:.2})",
        median(ratios),
        quantile(ratios, 0.25),
        quantile(ratios, 0.75)
    );
    let agree = ratios.iter().all(|ratio| *ratio < 1.0) || ratios.iter().all(|ratio| *ratio > 1.0);
    if agree { format!("**{text}**") } else { text }
}

/// The middle one.
pub(crate) fn median(figures: &[f64]) -> f64 {
    quantile(figures, 0.5)
}

/// Between the two nearest figures, in proportion.
fn quantile(figures: &[f64], quantile: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "few rounds")]
    let place = quantile * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index, since a quantile is from 0 to 1"
    )]
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
}
