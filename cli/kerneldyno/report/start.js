// Puts the page together once its index is read.

async function start() {
  const index = await unpack("index");
  const candidates = candidateList(index, (row) => viewer.open(row));
  const viewer = new Viewer(index, candidates.list);
  const show = (chosen) => {
    candidates.filter(chosen);
    document.getElementById("candidates").scrollIntoView();
    document.getElementById("candidate-search").focus({ preventScroll: true });
  };
  const problems = problemList(index, (row) => show({ problem: problems.rows.indexOf(row) }));
  document.getElementById("problems").hidden = index.problems.length < 2;
  document.getElementById("candidates").hidden = false;
  for (const button of document.querySelectorAll("[data-finding]")) {
    button.addEventListener("click", () => show({ finding: index.findings.indexOf(button.dataset.finding) }));
  }
  const linked = /^#c(\d{1,6})$/.exec(location.hash);
  if (linked && Number(linked[1]) < index.name.length) await viewer.open(Number(linked[1]));
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  const failure = document.getElementById("failure");
  failure.textContent = `The tables cannot be shown: ${error}. A browser of 2023 or later can.`;
  failure.hidden = false;
});
