// One candidate: what is known of it, its source, and what changed since the turn before or against the reference.

// Equal lines that are shown before and after a change.
const CONTEXT = 3;
// Facts that few want to see at once.
const ASIDE = ["where", "stages", "cached", "merged", "id", "digest"];

class Viewer {
  constructor(index, list) {
    this.index = index;
    this.list = list;
    this.row = -1;
    this.dialog = document.getElementById("viewer");
    this.heading = document.getElementById("viewer-title");
    this.body = document.getElementById("viewer-body");
    this.steps = { "-1": document.getElementById("viewer-before"), 1: document.getElementById("viewer-after") };
    for (const step of [-1, 1]) this.steps[step].addEventListener("click", () => this.step(step));
    document.getElementById("viewer-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => history.replaceState(null, "", "#candidates"));
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
    this.dialog.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && !event.altKey && !event.ctrlKey && !event.metaKey) this.step(step);
    });
  }

  async open(row) {
    const { index } = this;
    this.row = row;
    const problem = index.problems[index.problem[row]];
    this.heading.replaceChildren(problem ? problem + ": " + index.name[row] : index.name[row], " ", outcomeTag(index, row));
    const place = this.list.found.indexOf(row);
    this.steps[-1].disabled = place <= 0;
    this.steps[1].disabled = place < 0 || place === this.list.found.length - 1;
    history.replaceState(null, "", "#c" + row);
    if (!this.dialog.open) this.dialog.showModal();
    const reads = [this.details(row), index.previous[row] < 0 ? null : this.details(index.previous[row])];
    reads.push(valueOf("references", index.references, index.problem[row]));
    const [details, before, reference] = await Promise.all(reads);
    if (this.row !== row) return; // another one was opened meanwhile
    const parts = [
      make("p", { className: "message" }, details.message),
      this.turns(row),
      ...this.facts(row, details),
      this.code(details.source, before === null ? null : before.source, reference),
      ...details.texts.map(([heading, text, size]) =>
        make("details", { open: text.length < 2000 }, make("summary", {}, heading), note(text, size), lines(text.split("\n")))),
    ];
    this.body.replaceChildren(...parts.filter((part) => part !== null));
    this.body.scrollTop = 0;
    this.heading.focus();
  }

  details(row) {
    return valueOf("details", this.index.details, row);
  }

  step(by) {
    const place = this.list.found.indexOf(this.row);
    const next = place < 0 ? undefined : this.list.found[place + by];
    if (next !== undefined) this.open(next);
  }

  facts(row, details) {
    const { index } = this;
    const list = make("dl", {}), aside = make("dl", {});
    const add = (name, ...value) => {
      (ASIDE.includes(name) ? aside : list).append(make("dt", {}, name), make("dd", {}, ...value));
    };
    if (index.interpreted[row] && index.seconds[row] !== null) {
      add("beware", "times and speedup are a CPU's or Triton's interpreter's: they mean nothing for a GPU");
    }
    for (const [id, severity, evidence] of details.findings) {
      add("finding", make("span", { className: "tag " + severity }, id), " ", `${severity}: ${evidence}`);
    }
    const shown = new Set(details.findings.map(([id, severity]) => severity + " " + id));
    for (const [name, value] of details.facts) if (!shown.has(name)) add(name, value);
    return [list, make("details", {}, make("summary", {}, "Where, stages, ids"), aside)];
  }

  // The turns of the episode, where there are several.
  turns(row) {
    const { previous, name } = this.index;
    const rows = [row];
    while (previous[rows[0]] >= 0) rows.unshift(previous[rows[0]]);
    for (let next = row + 1; next < previous.length && previous[next] === next - 1; next += 1) rows.push(next);
    if (rows.length < 2) return null;
    const buttons = rows.map((one) => {
      const button = opener("", () => this.open(one));
      button.append(name[one].slice(name[one].lastIndexOf("turn")), " ", outcomeTag(this.index, one), " ",
        times(this.index.speedup[one]));
      if (one === row) button.setAttribute("aria-current", "step");
      return button;
    });
    return make("nav", { className: "turns", "aria-label": "Turns of this episode" }, ...buttons);
  }

  // The source, with a choice of what it is compared with.
  code(source, before, reference) {
    if (source === null) return make("p", { className: "note" }, "Its source is in no file that was given (--requests has it).");
    const [text, size] = source;
    const views = [["source", () => lines(text.split("\n"))]];
    if (before) views.unshift(["changes since the turn before", () => changes(before[0], text)]);
    if (reference) views.push(["against the reference", () => changes(reference[0], text)]);
    if (reference) views.push(["reference", () => lines(reference[0].split("\n"))]);
    const shown = make("div", { className: "view" });
    const bar = make("div", { className: "views", role: "group", "aria-label": "What to show" });
    const choose = (number) => {
      [...bar.children].forEach((button, one) => button.setAttribute("aria-pressed", one === number));
      shown.replaceChildren(views[number][1]());
    };
    bar.append(...views.map(([name], number) => opener(name, () => choose(number))));
    choose(0);
    return make("section", {}, bar, note(text, size), shown);
  }
}

// What of a text is missing, if something is.
function note(text, size) {
  if (!size) return null;
  const kept = new TextEncoder().encode(text).length;
  return make("p", { className: "note cut" }, `The first ${kept} of ${size} bytes; --budget allows more.`);
}

function lines(texts) {
  if (texts.length > 1 && texts[texts.length - 1] === "") texts.pop(); // what ends in a newline has no line after it
  return make("div", { className: "code" }, ...texts.map((text, number) => line(number + 1, " ", text)));
}

function line(number, sign, text) {
  const style = { "-": "line removed", "+": "line added", " ": "line" }[sign];
  const element = make("div", { className: style }, text);
  element.dataset.n = number || "";
  if (sign !== " ") element.dataset.sign = sign;
  return element;
}

function changes(a, b) {
  const rows = differences(a.replace(/\n$/, ""), b.replace(/\n$/, ""));
  const near = new Uint8Array(rows.length);
  rows.forEach(([sign], number) => {
    if (sign !== " ") near.fill(1, Math.max(0, number - CONTEXT), number + CONTEXT + 1);
  });
  const made = (row) => line(row[0] === "-" ? row[1] : row[2], row[0], row[3]);
  const parts = [];
  for (let start = 0; start < rows.length; ) {
    let end = start;
    while (end < rows.length && near[end] === near[start]) end += 1;
    const run = rows.slice(start, end);
    if (near[start]) parts.push(...run.map(made));
    else parts.push(gap(run, made));
    start = end;
  }
  const count = (sign) => rows.filter((row) => row[0] === sign).length;
  const added = count("+"), removed = count("-");
  const told = added + removed ? `Lines: ${added} added, ${removed} removed.` : "The same, line by line.";
  return make("div", {}, make("p", { className: "note" }, told), make("div", { className: "code diff" }, ...parts));
}

function gap(run, made) {
  const button = opener(`${run.length} equal line${run.length === 1 ? "" : "s"}`, () => button.replaceWith(...run.map(made)));
  button.className = "gap";
  return button;
}
