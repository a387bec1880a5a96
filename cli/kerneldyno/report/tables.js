// Tables that sort, filter and show a few rows at first: ten thousand rows at once would be slow.

const FIRST_ROWS = 25, MORE_ROWS = 500;

// A table of `rows`. Each column: name, cell(row) and, where it can be sorted by, value(row); `numeric` ones begin with the
// greatest. `matches(row)` is asked anew by refresh(). What has no value comes last, either way.
class List {
  constructor(id, rows, columns, matches) {
    this.rows = rows;
    this.columns = columns;
    this.matches = matches;
    this.found = rows;
    this.by = null;
    this.direction = 1;
    this.shown = FIRST_ROWS;
    this.table = document.getElementById(id + "-table");
    this.more = document.getElementById(id + "-more");
    this.count = document.getElementById(id + "-count");
    this.select = document.getElementById(id + "-sort");
    this.more.addEventListener("click", () => this.showMore());
    this.select.addEventListener("change", () => this.sort(...this.select.value.split(":")));
    this.makeHead();
  }

  makeHead() {
    this.select.append(make("option", { value: ":1" }, "order of the file"));
    const cells = this.columns.map((column) => {
      if (!column.value) return make("th", { scope: "col" }, column.name);
      for (const direction of column.numeric ? [-1, 1] : [1, -1]) {
        const how = column.numeric ? { "-1": "greatest first", 1: "least first" } : { "-1": "Z to A", 1: "A to Z" };
        this.select.append(make("option", { value: column.name + ":" + direction }, column.name + ", " + how[direction]));
      }
      const button = make("button", { type: "button" }, column.name);
      button.addEventListener("click", () => {
        const first = column.numeric ? -1 : 1;
        this.sort(column.name, this.by === column && this.direction === first ? -first : first);
      });
      return make("th", { scope: "col", className: column.numeric ? "n" : "" }, button);
    });
    this.table.tHead.append(make("tr", {}, ...cells));
  }

  sort(name, direction) {
    this.by = this.columns.find((column) => column.name === name) || null;
    this.direction = Number(direction);
    this.select.value = name + ":" + direction;
    this.columns.forEach((column, number) => {
      const heading = this.table.tHead.rows[0].cells[number];
      if (column === this.by) heading.setAttribute("aria-sort", this.direction > 0 ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
    });
    this.refresh();
  }

  refresh() {
    this.found = this.rows.filter(this.matches);
    if (this.by !== null) {
      const keyed = this.found.map((row) => [this.by.value(row), row]);
      keyed.sort(([a], [b]) => (a === null) - (b === null) || this.direction * ((a > b) - (a < b)));
      this.found = keyed.map(([, row]) => row);
    }
    this.shown = FIRST_ROWS;
    this.table.tBodies[0].replaceChildren();
    this.add(0);
    const all = this.rows.length;
    this.count.textContent = this.found.length === all ? `${all}` : `${this.found.length} of ${all}`;
  }

  showMore() {
    const first = this.shown;
    this.shown += MORE_ROWS;
    this.add(first);
    const button = this.table.tBodies[0].rows[first].querySelector("button");
    if (button) button.focus();
  }

  add(first) {
    const rows = this.found.slice(first, this.shown).map((row) => {
      const cells = this.columns.map((column) => {
        const cell = make("td", { className: (column.numeric ? "n " : "") + (column.style || "") }, ...column.cell(row));
        cell.dataset.name = column.name;
        if (!cell.hasChildNodes()) cell.classList.add("empty");
        return cell;
      });
      return make("tr", {}, ...cells);
    });
    this.table.tBodies[0].append(...rows);
    const left = this.found.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = left > MORE_ROWS ? `Show ${MORE_ROWS} more of ${left}` : `Show the other ${left}`;
  }
}

// The problems: how many candidates of each are right, and how fast.
function problemList(index, choose) {
  const rows = index.problems.map((name) => ({ name, count: 0, judged: 0, correct: 0, styles: {}, speedups: [] }));
  index.problem.forEach((problem, row) => {
    const into = rows[problem], [name, style] = index.outcomes[index.outcome[row]];
    into.count += 1;
    into.judged += index.counts[row];
    into.styles[style] = (into.styles[style] || 0) + 1;
    into.correct += name === "CORRECT" ? 1 : 0;
    if (index.speedup[row] === null) return;
    into.interpreted = into.interpreted || index.interpreted[row] === 1;
    into.speedups.push(index.speedup[row]);
  });
  for (const row of rows) {
    row.speedups.sort((a, b) => a - b);
    row.best = row.speedups.length ? row.speedups[row.speedups.length - 1] : null;
    row.median = row.speedups.length ? medianOf(row.speedups) : null;
  }
  const named = (row) => row.name || "(no name)";
  const columns = [
    { name: "problem", value: named, style: "first", cell: (row) => [opener(named(row), () => choose(row))] },
    { name: "outcomes", style: "strip", cell: (row) => [strip(row)] },
    {
      name: "correct", numeric: true, value: (row) => (row.judged ? row.correct / row.judged : null),
      cell: (row) => [row.judged ? `${row.correct} of ${row.judged}` : "no verdict"],
    },
    { name: "best", numeric: true, value: (row) => row.best, cell: (row) => speedupCell(row.best, row.interpreted) },
    { name: "median", numeric: true, value: (row) => row.median, cell: (row) => speedupCell(row.median, row.interpreted) },
  ];
  const search = document.getElementById("problem-search");
  const list = new List("problem", rows, columns, (row) => row.name.toLowerCase().includes(search.value.toLowerCase()));
  search.addEventListener("input", () => list.refresh());
  list.refresh();
  return list;
}

// The candidates. `open(row)` shows one. Returns the list, and filters that other parts of the page may set.
function candidateList(index, open) {
  const outcomeOf = (row) => index.outcomes[index.outcome[row]][0];
  const problemOf = (row) => index.problems[index.problem[row]];
  const columns = [
    {
      name: "candidate", value: (row) => index.name[row], style: "first",
      cell: (row) => [opener(index.name[row], () => open(row)), make("span", { className: "what" }, index.message[row])],
    },
    { name: "problem", value: problemOf, cell: (row) => [problemOf(row)] },
    { name: "outcome", value: outcomeOf, style: "verdict", cell: (row) => [outcomeTag(index, row)] },
    {
      name: "speedup", numeric: true, value: (row) => index.speedup[row],
      cell: (row) => speedupCell(index.speedup[row], index.interpreted[row], index.low[row], index.high[row]),
    },
    {
      name: "other time", numeric: true, value: (row) => index.other[row],
      cell: (row) => otherCell(index.other[row], index.interpreted[row], index.by[row]),
    },
    ...["seconds", "reference"].map((name) => ({
      name: name === "seconds" ? "time" : name, numeric: true, value: (row) => index[name][row],
      cell: (row) => (index[name][row] === null ? [] : [lasting(index[name][row])]),
    })),
    {
      name: "findings", value: (row) => index.noticed[row].map((id) => index.findings[id]).join(" ") || null,
      cell: (row) => index.noticed[row].map((id) => make("span", { className: "tag" }, index.findings[id])),
    },
  ];
  const search = document.getElementById("candidate-search");
  const outcome = chooser("candidate-outcome", index.outcomes.map(([name]) => name), index.outcome.map((one) => [one]));
  const finding = chooser("candidate-finding", index.findings, index.noticed);
  const chip = document.getElementById("candidate-problem");
  let problem = -1;
  const texts = index.name.map((name, row) => (problemOf(row) + " " + name + " " + index.message[row]).toLowerCase());
  const list = new List("candidate", index.name.map((_, row) => row), columns, (row) =>
    (problem < 0 || index.problem[row] === problem) &&
    (outcome.value === "" || index.outcome[row] === Number(outcome.value)) &&
    (finding.value === "" || index.noticed[row].includes(Number(finding.value))) &&
    texts[row].includes(search.value.toLowerCase()));
  for (const control of [search, outcome, finding]) control.addEventListener("input", () => list.refresh());
  chip.addEventListener("click", () => filter({}));
  const filter = (chosen) => {
    problem = chosen.problem === undefined ? -1 : chosen.problem;
    finding.value = chosen.finding === undefined ? "" : chosen.finding;
    outcome.value = search.value = "";
    chip.hidden = problem < 0;
    chip.replaceChildren(problem < 0 ? "" : `problem ${index.problems[problem] || "(no name)"}  \u2715`);
    list.refresh();
  };
  list.refresh();
  return { list, filter };
}

// A select over `names` with how many rows have each.
function chooser(id, names, having) {
  const counts = names.map(() => 0);
  for (const ids of having) for (const one of ids) counts[one] += 1;
  const select = document.getElementById(id);
  const order = names.map((_, number) => number).sort((a, b) => counts[b] - counts[a]);
  const options = order.map((number) => make("option", { value: number }, `${names[number]} (${counts[number]})`));
  select.append(make("option", { value: "" }, "any"), ...options);
  select.parentElement.hidden = names.length === 0;
  return select;
}

function opener(text, action) {
  const button = make("button", { type: "button", className: "open" }, text);
  button.addEventListener("click", action);
  return button;
}

function speedupCell(value, interpreted, low = null, high = null) {
  if (value === null) return [];
  const title = interpreted ? "of a CPU or of Triton's interpreter: it means nothing for a GPU" : "";
  const shown = make("span", { className: interpreted ? "doubtful" : "", title }, times(value));
  return low === null ? [shown] : [shown, make("span", { className: "interval" }, `${times(low)} to ${times(high)}`)];
}

// The speedup that does not count, and by which time it is; `by` is that of the one that counts.
function otherCell(value, interpreted, by) {
  const [shown] = speedupCell(value, interpreted);
  if (shown === undefined) return [];
  return [shown, make("span", { className: "interval" }, by === "end to end" ? "by device time" : "end to end")];
}

function strip(row) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const title = document.createElementNS(space, "title");
  const names = { good: "right", bad: "failed", odd: "not judged or invalid" };
  const parts = Object.keys(names).filter((style) => row.styles[style]);
  title.textContent = parts.map((style) => `${row.styles[style]} ${names[style]}`).join(", ");
  svg.setAttribute("viewBox", `0 0 ${row.count} 1`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "bar");
  svg.append(title);
  let x = 0;
  for (const style of parts) {
    const rect = document.createElementNS(space, "rect");
    for (const [name, value] of Object.entries({ x, width: row.styles[style], height: 1, class: style })) {
      rect.setAttribute(name, value);
    }
    x += row.styles[style];
    svg.append(rect);
  }
  return svg;
}

function medianOf(sorted) {
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
