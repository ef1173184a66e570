"use strict";
// Without this script the page is complete; only sorting and copying are missing.
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const told = document.getElementById("told");
  const keys = new Map(
    [...body.rows].map((row) => [
      row,
      row.dataset.keys.split(" ").map((word) => (word === "inf" ? Infinity : Number(word))),
    ])
  );

  function sort(column) {
    const head = heads[column];
    const up = head.getAttribute("aria-sort") !== "ascending";
    const sign = up ? 1 : -1;
    const known = (value) => Number.isFinite(value);
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [keys.get(a)[column], keys.get(b)[column]];
      // Cells without a number come last in both orders; ties keep the order of components.
      if (known(x) !== known(y)) return known(x) ? -1 : 1;
      const apart = known(x) ? sign * (x - y) : 0;
      return apart || keys.get(a)[0] - keys.get(b)[0];
    });
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows);
    told.textContent = `Sorted by ${head.textContent}, ${up ? "smallest" : "largest"} first.`;
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(column));
    head.replaceChildren(button);
  });

  async function copy(button, code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = told.textContent = "Copied";
    } catch {
      // A browser may deny the clipboard to local files: select the lines for Ctrl+C instead.
      getSelection().selectAllChildren(code);
      button.textContent = told.textContent = "Selected, press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 3000);
  }

  for (const block of document.querySelectorAll(".code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-describedby", block.querySelector("h3").id);
    button.addEventListener("click", () => copy(button, block.querySelector("code")));
    block.insertBefore(button, block.querySelector("pre"));
  }
})();
