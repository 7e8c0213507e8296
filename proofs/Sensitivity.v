(* What one person can do to the answers of a query, for tables, people and rows of any size.

   The definitions follow src/sklar/kernel/queries.py and theorems.py. tests/proofs ties them to the code: the same
   functions, written in Python, are compared with the kernel's and with what this file computes, on random inputs. *)

Require Import Arith Bool List Lia ZArith.
Import ListNotations.

(* --- Tables of counts ------------------------------------------------------------------------------------------- *)

Fixpoint total (v : list nat) : nat :=
  match v with [] => 0 | x :: rest => x + total rest end.

Fixpoint squares (v : list nat) : nat :=
  match v with [] => 0 | x :: rest => x * x + squares rest end.

(* The squared distance and the L1 distance of two tables. Of x - y and y - x one is 0: natural numbers stop there. *)
Fixpoint apart (u v : list nat) : nat :=
  match u, v with
  | x :: u', y :: v' => (x - y) * (x - y) + (y - x) * (y - x) + apart u' v'
  | _, [] => squares u
  | [], _ => squares v
  end.

Fixpoint steps (u v : list nat) : nat :=
  match u, v with
  | x :: u', y :: v' => (x - y) + (y - x) + steps u' v'
  | _, [] => total u
  | [], _ => total v
  end.

(* The part of u that v has not, cell by cell. *)
Fixpoint beyond (u v : list nat) : list nat :=
  match u, v with
  | x :: u', y :: v' => (x - y) :: beyond u' v'
  | _, [] => u
  | [], _ => []
  end.

Lemma squares_of_total : forall v, squares v <= total v * total v.
Proof. induction v; simpl; nia. Qed.

Lemma apart_squares : forall u v, apart u v <= squares u + squares v.
Proof.
  induction u as [| x u IH]; intros [| y v]; simpl; try lia.
  specialize (IH v). destruct (le_lt_dec x y); nia.
Qed.

Lemma steps_totals : forall u v, steps u v <= total u + total v.
Proof. induction u as [| x u IH]; intros [| y v]; simpl; try lia. specialize (IH v). lia. Qed.

(* Replacing a person of at most L rows: L2 sensitivity sqrt(2) L and L1 sensitivity 2 L, for any number of cells. *)
Theorem replaced : forall L u v, total u <= L -> total v <= L -> apart u v <= 2 * (L * L) /\ steps u v <= 2 * L.
Proof.
  intros L u v Hu Hv. pose proof (squares_of_total u). pose proof (squares_of_total v).
  pose proof (apart_squares u v). pose proof (steps_totals u v). nia.
Qed.

(* Adding or removing a person: L and L. *)
Theorem added : forall L v, total v <= L -> apart [] v <= L * L /\ steps [] v <= L.
Proof.
  intros L v H. pose proof (squares_of_total v).
  assert (apart [] v = squares v) as -> by (destruct v; reflexivity).
  assert (steps [] v = total v) as -> by (destruct v; reflexivity). nia.
Qed.

(* The two moves of a replacement: what goes and what comes, each of reach L, over separate cells. *)
Lemma beyond_total : forall u v, total (beyond u v) <= total u.
Proof. induction u as [| x u IH]; intros [| y v]; simpl; try lia. specialize (IH v). lia. Qed.

Theorem two_moves : forall L u v, total u <= L -> total v <= L ->
  total (beyond u v) <= L /\ total (beyond v u) <= L /\ (forall i, nth i (beyond u v) 0 * nth i (beyond v u) 0 = 0).
Proof.
  intros L u v Hu Hv. pose proof (beyond_total u v). pose proof (beyond_total v u).
  repeat split; try lia. clear. revert v.
  induction u as [| x u IH]; intros [| y v] [| i]; simpl; try lia; try apply IH; destruct i; simpl; lia.
Qed.

(* --- Rows stand in cells ---------------------------------------------------------------------------------------- *)

(* The place of a row in a table of these sizes, the last attribute fastest; none where a code is no level. *)
Fixpoint place (before : nat) (sizes codes : list nat) : option nat :=
  match sizes, codes with
  | [], [] => Some before
  | size :: sizes', code :: codes' => if code <? size then place (before * size + code) sizes' codes' else None
  | _, _ => None
  end.

Fixpoint cells (sizes : list nat) : nat := match sizes with [] => 1 | size :: rest => size * cells rest end.

Lemma place_within : forall sizes codes before p, place before sizes codes = Some p ->
  before * cells sizes <= p < (before + 1) * cells sizes.
Proof.
  induction sizes as [| size sizes IH]; intros [| code codes] before p H; simpl in *; try discriminate.
  - injection H as <-. lia.
  - destruct (Nat.ltb_spec code size); try discriminate. apply IH in H. nia.
Qed.

Theorem a_row_has_a_cell_of_the_table : forall sizes codes p, place 0 sizes codes = Some p -> p < cells sizes.
Proof. intros sizes codes p H. apply place_within in H. lia. Qed.

(* Rows by their cells; a row in no cell is None. How many rows stand in each of the first n cells. *)
Definition stands (cell : nat) (row : option nat) : bool :=
  match row with Some c => c =? cell | None => false end.
Definition count (rows : list (option nat)) (cell : nat) : nat := length (filter (stands cell) rows).
Definition table (n : nat) (rows : list (option nat)) : list nat := map (count rows) (seq 0 n).

Lemma count_cons : forall row rows cell,
  count (row :: rows) cell = (if stands cell row then 1 else 0) + count rows cell.
Proof. intros. unfold count. simpl. destruct (stands cell row); reflexivity. Qed.

Lemma total_one : forall row from n, total (map (fun cell => if stands cell row then 1 else 0) (seq from n)) <= 1.
Proof.
  intros [c |] from n; simpl.
  - revert from. induction n as [| n IH]; intros from; simpl; try lia.
    destruct (Nat.eqb_spec c from) as [-> |]; [| apply IH].
    assert (forall k f, from < f -> total (map (fun cell => if from =? cell then 1 else 0) (seq f k)) = 0) as none.
    { induction k as [| k IHk]; intros f Hf; simpl; trivial.
      destruct (Nat.eqb_spec from f); try lia. rewrite IHk; lia. }
    rewrite none; lia.
  - revert from. induction n; intros; simpl; [lia | apply IHn].
Qed.

Lemma total_sum : forall (f g : nat -> nat) l, total (map (fun x => f x + g x) l) = total (map f l) + total (map g l).
Proof. induction l; simpl; lia. Qed.

(* At most L rows of a person: a vector of whole numbers, none negative, of sum at most L. *)
Theorem rows_sum_to_at_most : forall n rows, total (table n rows) <= length rows.
Proof.
  intros n rows. unfold table. induction rows as [| row rows IH]; simpl.
  - induction (seq 0 n); simpl; trivial.
  - replace (map (count (row :: rows)) (seq 0 n))
      with (map (fun cell => (if stands cell row then 1 else 0) + count rows cell) (seq 0 n))
      by (apply map_ext; intros; rewrite count_cons; reflexivity).
    rewrite total_sum. pose proof (total_one row 0 n). lia.
Qed.

Lemma count_app : forall one two cell, count (one ++ two) cell = count one cell + count two cell.
Proof. intros. unfold count. rewrite filter_app, app_length. reflexivity. Qed.

Lemma apart_plus : forall (others u v : nat -> nat) places,
  apart (map (fun c => others c + u c) places) (map (fun c => others c + v c) places)
  = apart (map u places) (map v places).
Proof.
  induction places as [| c rest IH]; simpl; trivial. rewrite IH.
  replace (others c + u c - (others c + v c)) with (u c - v c) by lia.
  replace (others c + v c - (others c + u c)) with (v c - u c) by lia. reflexivity.
Qed.

(* The lemma that every certificate rests on: whatever the other rows are, and whatever the table. *)
Theorem sensitivity : forall n L others old new, length old <= L -> length new <= L ->
  apart (table n (others ++ old)) (table n (others ++ new)) <= 2 * (L * L).
Proof.
  intros n L others old new Ho Hn. unfold table.
  replace (map (count (others ++ old)) (seq 0 n)) with (map (fun c => count others c + count old c) (seq 0 n))
    by (apply map_ext; intros; rewrite count_app; reflexivity).
  replace (map (count (others ++ new)) (seq 0 n)) with (map (fun c => count others c + count new c) (seq 0 n))
    by (apply map_ext; intros; rewrite count_app; reflexivity).
  rewrite apart_plus. pose proof (rows_sum_to_at_most n old). pose proof (rows_sum_to_at_most n new).
  apply replaced; unfold table in *; lia.
Qed.

Theorem sensitivity_of_adding : forall n L others person, length person <= L ->
  apart (table n others) (table n (others ++ person)) <= L * L.
Proof.
  intros n L others person H. unfold table.
  replace (map (count (others ++ person)) (seq 0 n)) with (map (fun c => count others c + count person c) (seq 0 n))
    by (apply map_ext; intros; rewrite count_app; reflexivity).
  replace (map (count others) (seq 0 n)) with (map (fun c => count others c + count [] c) (seq 0 n))
    by (apply map_ext; intros; unfold count; simpl; lia).
  rewrite apart_plus.
  assert (forall l, apart (map (count []) l) (map (count person) l) = squares (map (count person) l)) as ->.
  { induction l as [| c l IH]; simpl; trivial. rewrite IH. change (count [] c) with 0. simpl. rewrite Nat.sub_0_r. reflexivity. }
  pose proof (squares_of_total (map (count person) (seq 0 n))).
  pose proof (rows_sum_to_at_most n person). unfold table in *. nia.
Qed.

(* --- Shares: tokens that a person deals -------------------------------------------------------------------------- *)

(* Entries with parts w, of which the parts before sum to P and all to T, get floor(G (P + x) / T) - floor(G P / T). All
   together that is G, whatever the parts are, and a natural number each. *)
Fixpoint dealt (G T P : nat) (w : list nat) : list nat :=
  match w with [] => [] | x :: rest => (G * (P + x) / T - G * P / T) :: dealt G T (P + x) rest end.

Lemma telescopes : forall G T w P, T <> 0 -> total (dealt G T P w) + G * P / T = G * (P + total w) / T.
Proof.
  intros G T w. induction w as [| x w IH]; intros P H; simpl; [now rewrite Nat.add_0_r |].
  specialize (IH (P + x) H). replace (P + (x + total w)) with (P + x + total w) by lia.
  assert (G * P / T <= G * (P + x) / T) by (apply Nat.div_le_mono; nia). lia.
Qed.

Theorem tokens : forall G w, total w <> 0 -> total (dealt G (total w) 0 w) = G.
Proof.
  intros G w H. pose proof (telescopes G (total w) w 0 H) as E. simpl in E.
  rewrite Nat.mul_0_r, Nat.div_0_l, Nat.add_0_r, Nat.div_mul in E by exact H. exact E.
Qed.

(* --- Parities ---------------------------------------------------------------------------------------------------- *)

(* A set of bits is a mask. Whether the chosen bits of a row sum to an odd number. *)
Fixpoint odd_sum (mask row : list bool) : bool :=
  match mask, row with
  | chosen :: mask', bit :: row' => xorb (chosen && bit) (odd_sum mask' row')
  | _, _ => false
  end.

Fixpoint masks (k m : nat) : list (list bool) :=
  match m with
  | 0 => match k with 0 => [[]] | _ => [] end
  | S m' => map (cons false) (masks k m') ++ match k with 0 => [] | S k' => map (cons true) (masks k' m') end
  end.

Fixpoint changes (one two : list bool) : list bool :=
  match one, two with a :: one', b :: two' => xorb a b :: changes one' two' | _, _ => [] end.

(* The sets of k bits whose parity differs between two rows. *)
Definition moved (k : nat) (one two : list bool) : nat :=
  length (filter (fun mask => xorb (odd_sum mask one) (odd_sum mask two)) (masks k (length one))).

(* The sets of k bits, an odd (or even) number of which changed. *)
Fixpoint sets (k : nat) (odd : bool) (changed : list bool) : nat :=
  match changed with
  | [] => match k with 0 => if odd then 0 else 1 | _ => 0 end
  | c :: rest => sets k odd rest + match k with 0 => 0 | S k' => sets k' (xorb c odd) rest end
  end.

Lemma odd_sum_changes : forall mask one two, length one = length two ->
  odd_sum mask (changes one two) = xorb (odd_sum mask one) (odd_sum mask two).
Proof.
  induction mask as [| c mask IH]; intros [| a one] [| b two] H; simpl in *; try discriminate; trivial.
  rewrite IH by lia. destruct c, a, b, (odd_sum mask one), (odd_sum mask two); reflexivity.
Qed.

Lemma filter_map_length : forall {A B} (f : A -> B) p l,
  length (filter p (map f l)) = length (filter (fun x => p (f x)) l).
Proof. induction l; simpl; trivial. destruct (p (f a)); simpl; rewrite IHl; reflexivity. Qed.

Lemma filter_same : forall {A} (p q : A -> bool) l, (forall x, p x = q x) -> filter p l = filter q l.
Proof. intros A p q l H. induction l; simpl; trivial. rewrite H, IHl. reflexivity. Qed.

Lemma sets_counted : forall changed k odd,
  length (filter (fun mask => Bool.eqb (odd_sum mask changed) odd) (masks k (length changed))) = sets k odd changed.
Proof.
  induction changed as [| c changed IH]; intros k odd; simpl.
  - destruct k, odd; reflexivity.
  - rewrite filter_app, app_length, filter_map_length. f_equal.
    + rewrite <- IH. f_equal. apply filter_same. intros mask. simpl. destruct (odd_sum mask changed); reflexivity.
    + destruct k as [| k]; trivial. rewrite filter_map_length, <- IH. f_equal. apply filter_same.
      intros mask. simpl. destruct c, odd, (odd_sum mask changed); reflexivity.
Qed.

Theorem moved_are_odd_sets : forall k one two, length one = length two ->
  moved k one two = sets k true (changes one two).
Proof.
  intros k one two H. unfold moved. rewrite <- sets_counted.
  replace (length (changes one two)) with (length one).
  - f_equal. apply filter_same. intros mask. rewrite odd_sum_changes by trivial.
    destruct (odd_sum mask one), (odd_sum mask two); reflexivity.
  - clear k. revert two H. induction one; intros [| b two] H; simpl in *; try discriminate; auto.
Qed.

Fixpoint trues (l : list bool) : nat := match l with [] => 0 | b :: rest => (if b then 1 else 0) + trues rest end.

Open Scope Z_scope.

(* n_1 = s, n_2 = s (m - s), 6 n_3 = 3 s (m - s) (m - s - 1) + s (s - 1) (s - 2): for any number m of bits, of which s
   changed. `r` is m - s. *)
Lemma sets_closed : forall l,
  let s := Z.of_nat (trues l) in let r := Z.of_nat (length l) - s in
  Z.of_nat (sets 0 true l) = 0 /\ Z.of_nat (sets 0 false l) = 1 /\
  Z.of_nat (sets 1 true l) = s /\ Z.of_nat (sets 1 false l) = r /\
  Z.of_nat (sets 2 true l) = s * r /\ 2 * Z.of_nat (sets 2 false l) = s * (s - 1) + r * (r - 1) /\
  6 * Z.of_nat (sets 3 true l) = 3 * s * r * (r - 1) + s * (s - 1) * (s - 2).
Proof.
  induction l as [| b l IH]; cbn [sets trues length]; [simpl; lia |].
  cbn zeta in IH. destruct IH as (z1 & z2 & o1 & o2 & p1 & p2 & t).
  destruct b; cbn [xorb negb]; rewrite ?Nat2Z.inj_add, ?Nat2Z.inj_succ; cbn [Z.of_nat Pos.of_succ_nat];
    repeat split; nia.
Qed.

Theorem parities_moved : forall one two, length one = length two ->
  let s := Z.of_nat (trues (changes one two)) in let r := Z.of_nat (length (changes one two)) - s in
  Z.of_nat (moved 1 one two) = s /\ Z.of_nat (moved 2 one two) = s * r /\
  6 * Z.of_nat (moved 3 one two) = 3 * s * r * (r - 1) + s * (s - 1) * (s - 2).
Proof.
  intros one two H. rewrite !moved_are_odd_sets by trivial.
  pose proof (sets_closed (changes one two)) as (_ & _ & a & _ & b & _ & c). auto.
Qed.

(* --- Several rows of a person ------------------------------------------------------------------------------------ *)

(* Vectors with weights: those of the answer's cells, one over the variance of their noise, times a common factor. *)
Fixpoint weighed (w v : list Z) : Z :=
  match w, v with a :: w', x :: v' => a * (x * x) + weighed w' v' | _, _ => 0 end.

Fixpoint plus (u v : list Z) : list Z :=
  match u, v with x :: u', y :: v' => (x + y) :: plus u' v' | _, _ => [] end.

Lemma weighed_plus : forall w u v n, Forall (fun a => 0 <= a) w -> length u = length w -> length v = length w -> 0 < n ->
  n * weighed w (plus u v) <= (n + 1) * weighed w u + n * (n + 1) * weighed w v.
Proof.
  induction w as [| a w IH]; intros [| x u] [| y v] n Hw Hu Hv Hn; simpl in *; try discriminate; try lia.
  inversion Hw; subst. specialize (IH u v n ltac:(assumption) ltac:(lia) ltac:(lia) Hn).
  assert (0 <= a * ((x - n * y) * (x - n * y))) as square by (apply Z.mul_nonneg_nonneg; [assumption | apply Z.square_nonneg]).
  set (U := weighed w u) in *. set (V := weighed w v) in *. set (W := weighed w (plus u v)) in *.
  apply Z.le_trans with (n * (a * ((x + y) * (x + y))) + ((n + 1) * U + n * (n + 1) * V)); [lia |].
  replace ((n + 1) * (a * (x * x) + U) + n * (n + 1) * (a * (y * y) + V))
    with (n * (a * ((x + y) * (x + y))) + ((n + 1) * U + n * (n + 1) * V) + a * ((x - n * y) * (x - n * y))) by ring.
  lia.
Qed.

Fixpoint sum (m : nat) (vs : list (list Z)) : list Z :=
  match vs with [] => repeat 0 m | v :: rest => plus (sum m rest) v end.

Lemma plus_length : forall u v, length u = length v -> length (plus u v) = length u.
Proof. induction u; intros [| y v] H; simpl in *; try discriminate; trivial. rewrite IHu; lia. Qed.

Lemma sum_length : forall m vs, Forall (fun v => length v = m) vs -> length (sum m vs) = m.
Proof.
  induction vs as [| v vs IH]; intros H; simpl; [apply repeat_length |].
  inversion H; subst. rewrite plus_length; rewrite IH; trivial.
Qed.

Lemma weighed_zero : forall w m, weighed w (repeat 0 m) = 0.
Proof. induction w; intros [| m]; simpl; trivial. rewrite IHw. lia. Qed.

Lemma plus_zero : forall v m, length v = m -> plus (repeat 0 m) v = v.
Proof. induction v; intros [| m] H; simpl in *; try discriminate; trivial. rewrite IHv by lia. reflexivity. Qed.

(* L vectors, each of weighed squared length at most M, have a sum of at most L^2 M. *)
Theorem rows_of_a_person : forall w M vs, Forall (fun a => 0 <= a) w -> 0 <= M ->
  Forall (fun v => length v = length w /\ weighed w v <= M) vs ->
  weighed w (sum (length w) vs) <= Z.of_nat (length vs) * Z.of_nat (length vs) * M.
Proof.
  intros w M vs Hw HM. induction vs as [| v vs IH]; intros H; [simpl; rewrite weighed_zero; lia |].
  inversion H as [| ? ? (Hl & Hv) Hs]; subst. specialize (IH Hs).
  assert (length (sum (length w) vs) = length w) as Hlen.
  { apply sum_length. eapply Forall_impl; [| exact Hs]. intros x (Hx & _). exact Hx. }
  cbn [sum length]. destruct vs as [| v' vs'].
  - cbn [sum length] in *. rewrite plus_zero by trivial. change (Z.of_nat 1) with 1. lia.
  - set (n := Z.of_nat (length (v' :: vs'))) in *.
    assert (0 < n) as Hn by (subst n; simpl; lia).
    pose proof (weighed_plus w (sum (length w) (v' :: vs')) v n Hw Hlen Hl Hn) as Hp.
    rewrite Nat2Z.inj_succ. fold n.
    set (S := weighed w (sum (length w) (v' :: vs'))) in *.
    set (T := weighed w (plus (sum (length w) (v' :: vs')) v)) in *.
    assert (n * T <= n * ((n + 1) * (n + 1) * M)) as bound.
    { apply Z.le_trans with ((n + 1) * (n * n * M) + n * (n + 1) * M); [| apply Z.eq_le_incl; ring].
      assert ((n + 1) * S <= (n + 1) * (n * n * M)) by (apply Z.mul_le_mono_nonneg_l; lia).
      assert (n * (n + 1) * weighed w v <= n * (n + 1) * M) by (apply Z.mul_le_mono_nonneg_l; [nia | lia]). lia. }
    unfold Z.succ. apply Z.mul_le_mono_pos_l with n; assumption.
Qed.

(* --- Distances ----------------------------------------------------------------------------------------------------- *)

(* Along an axis of K cells, K times what centering leaves of each: x_i - (sum x) / K, in whole numbers. *)
Fixpoint add_up (x : list Z) : Z := match x with [] => 0 | a :: rest => a + add_up rest end.
Fixpoint lengths (x : list Z) : Z := match x with [] => 0 | a :: rest => a * a + lengths rest end.

Lemma lengths_of_shifted : forall K S x,
  lengths (map (fun a => K * a - S) x) = K * K * lengths x - 2 * K * S * add_up x + Z.of_nat (length x) * (S * S).
Proof.
  intros K S x. induction x as [| a x IH]; [simpl; ring |].
  cbn [map lengths add_up length]. rewrite IH, Nat2Z.inj_succ. unfold Z.succ. ring.
Qed.

(* Centering makes nothing longer; a table is centered line by line along one axis after the other. *)
Theorem centering : forall x, let K := Z.of_nat (length x) in
  lengths (map (fun a => K * a - add_up x) x) <= K * K * lengths x.
Proof.
  intros x K. rewrite lengths_of_shifted. fold K. set (S := add_up x).
  assert (0 <= K * (S * S)) by (apply Z.mul_nonneg_nonneg; [subst K; lia | apply Z.square_nonneg]).
  replace (2 * K * S * S) with (2 * (K * (S * S))) by ring. lia.
Qed.

(* Nothing is assumed: `make proofs` wants these lines to say so. *)
Print Assumptions replaced.
Print Assumptions added.
Print Assumptions two_moves.
Print Assumptions a_row_has_a_cell_of_the_table.
Print Assumptions sensitivity.
Print Assumptions sensitivity_of_adding.
Print Assumptions tokens.
Print Assumptions parities_moved.
Print Assumptions rows_of_a_person.
Print Assumptions centering.
