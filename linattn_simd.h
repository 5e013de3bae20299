/* linattn_simd.h: the kernels of linattn.h, included by it once per instruction set. SPDX: MIT

   (A) The vocabulary: about thirty words on vectors of LA_W floats, one block per instruction set,
       and the numbers that suit it. Intrinsics live only here. A new instruction set is a new
       block.
   (B) One kernel text, written in that vocabulary.
   A new kernel is a function in (B) and a LINATTN__DECLARE in its section of linattn.h, or a
   LINATTN__DECLARE_COMMON where it is cold, LINATTN__DECLARE_ONE where all share it: see LA_COLD
   and LA_WALK.

   CONTENTS of (B), in the order of linattn.h
   exp and the maps on vectors; sums (the maps, z and denominators; masked tokens and moving
   exponents; tiles; blocks of tokens; products; update; merge; tiles in 16 bits; one token);
   recurrences (what a block needs; tiles; blocks of tokens); windows; features; exact attention;
   Nystroem; maps on arrays

   Three rules keep the bits equal on every instruction set:
   - an element of S, z or the output is accumulated token by token, or feature by feature, by fma,
     and a score of exact attention by eight chains: see la_score_chains;
   - a sum across lanes is taken over 16 virtual lanes and one tree: (i,i+8) (i,i+4) (i,i+2)
     (i,i+1);
   - never a product that is then added: fma or nothing, as compilers contract such pairs.

   S lies in panels of 16 columns, one cache line per row, half of one where it is kept in 16 bits:
   [ceil(dim_value / 16)][m][16]. Columns beyond dim_value are zero. */

#ifndef LINATTN__ISA
#error "linattn_simd.h is included by linattn.h only"
#endif
#if LINATTN__ISA == LINATTN__ISA_SCALAR && defined(LA_FUSED)
#define LA_NAME(word) linattn__##word##_fused
#elif LINATTN__ISA == LINATTN__ISA_SCALAR
#define LA_NAME(word) linattn__##word##_scalar
#elif LINATTN__ISA == LINATTN__ISA_AVX2
#define LA_NAME(word) linattn__##word##_avx2
#elif LINATTN__ISA == LINATTN__ISA_AVX512
#define LA_NAME(word) linattn__##word##_avx512
#elif LINATTN__ISA == LINATTN__ISA_NEON
#define LA_NAME(word) linattn__##word##_neon
#elif LINATTN__ISA == LINATTN__ISA_SIMD128
#define LA_NAME(word) linattn__##word##_simd128
#elif LINATTN__ISA == LINATTN__ISA_RELAXED
#define LA_NAME(word) linattn__##word##_relaxed
#elif LINATTN__ISA == LINATTN__ISA_SSE2
#define LA_NAME(word) linattn__##word##_sse2
#endif

/* Where there are both AVX2 and AVX-512, what is cold is compiled for AVX2 alone: the bits are the
   same. AVX-512's kernels call that, and so do verbs (LINATTN__COMMON). A cold function calls hot
   ones by LA_HOT: those of the set that its call began with. What both sides name is COMMON: types
   that cross have one layout, and counts of vectors do not cross, but columns and features.
   LA_COLD: this inclusion has the cold text. */
#if LINATTN__BOTH && LINATTN__ISA == LINATTN__ISA_AVX512
#define LA_COLD 0
#define LA_COMMON(word) linattn__##word##_avx2
#else
#define LA_COLD 1
#define LA_COMMON(word) LA_NAME(word)
#endif
#if LINATTN__BOTH && LINATTN__ISA == LINATTN__ISA_AVX2
#define LA_EITHER(call, of_avx512, own) ((call)->set > 1 ? (of_avx512) : (own))
#define LA_HOT(call, word) LA_EITHER(call, linattn__##word##_avx512, LA_NAME(word))
#else
#define LA_EITHER(call, of_avx512, own) (own)
#define LA_HOT(call, word) LA_NAME(word)
#endif

/* And what holds next to no arithmetic, but walks through blocks, runs and tokens, is compiled once
   for all three, in plain code of the inclusion for scalar code. It calls the rest by LA_OF: that
   of the set that its call began with, which LINATTN__DECLARE_EACH lists. Scratch is then that of
   vectors for scalar code, too. LA_WALK: this inclusion has the shared text. LA_HALF: that of AVX2,
   which takes half of a vector in half the time, where `half`. LA_VECTOR: what scalar code does not
   need. */
#if LINATTN__BOTH
#define LA_WALK (LINATTN__ISA == LINATTN__ISA_SCALAR)
#define LA_SHARED(word) linattn__##word##_scalar
#define LA_OF(call, word) linattn__##word##_of[(call)->set]
#define LA_WIDEST(call) ((call)->set > 1)
#define LA_VECTORS(call) ((call)->set > 0)
#define LA_LANES(call) ((call)->set > 0 ? 8 * (size_t)(call)->set : 1)
#define LA_HALF(call, word, half) linattn__##word##_of[(half) ? 1 : (call)->set]
#define LA_VECTOR(word) linattn__##word##_avx2
#else
#define LA_WALK 1
#define LA_SHARED(word) LA_NAME(word)
#define LA_OF(call, word) LA_NAME(word)
#define LA_WIDEST(call) 0
#define LA_VECTORS(call) ((void)(call), LA_W > 1)
#define LA_LANES(call) ((size_t)LA_W)
#define LA_HALF(call, word, half) ((void)(half), LA_NAME(word))
#define LA_VECTOR(word) LA_NAME(word)
#endif

/* The names of this inclusion: all that begin with la_ get its suffix. */
#define la_add LA_NAME(add)
#define la_add_key LA_NAME(add_key)
#define la_adjust LA_NAME(adjust)
#define la_any LA_NAME(any)
#define la_band_mask LA_NAME(band_mask)
#define la_band_settle LA_NAME(band_settle)
#define la_between LA_NAME(between)
#define la_bits LA_NAME(bits)
#define la_by_sign LA_NAME(by_sign)
#define la_cancel_one LA_NAME(cancel_one)
#define la_cancelled_factor LA_NAME(cancelled_factor)
#define la_capped LA_NAME(capped)
#define la_causal_columns LA_NAME(causal_columns)
#define la_causal_run LA_NAME(causal_run)
#define la_causal_tile LA_NAME(causal_tile)
#define la_causal_tiles LA_NAME(causal_tiles)
#define la_choose LA_NAME(choose)
#define la_clamp LA_NAME(clamp)
#define la_clear LA_NAME(clear)
#define la_column LA_NAME(column)
#define la_coordinates LA_NAME(coordinates)
#define la_copy LA_NAME(copy)
#define la_current LA_NAME(current)
#define la_dadd LA_NAME(dadd)
#define la_ddiv LA_NAME(ddiv)
#define la_denominator LA_NAME(denominator)
#define la_dflush LA_NAME(dflush)
#define la_dfma LA_NAME(dfma)
#define la_dgt LA_NAME(dgt)
#define la_div LA_NAME(div)
#define la_dload LA_NAME(dload)
#define la_dmax LA_NAME(dmax)
#define la_dmul LA_NAME(dmul)
#define la_dscale LA_NAME(dscale)
#define la_dset1 LA_NAME(dset1)
#define la_dstore LA_NAME(dstore)
#define la_dsub LA_NAME(dsub)
#define la_dwiden LA_NAME(dwiden)
#define la_edge_begin LA_NAME(edge_begin)
#define la_edge_end LA_NAME(edge_end)
#define la_edge_rows LA_NAME(edge_rows)
#define la_elements LA_NAME(elements)
#define la_eq LA_NAME(eq)
#define la_exact_block LA_NAME(exact_block)
#define la_exact_end LA_NAME(exact_end)
#define la_exact_head LA_NAME(exact_head)
#define la_exact_keys LA_NAME(exact_keys)
#define la_exact_lanes LA_NAME(exact_lanes)
#define la_exact_outputs LA_NAME(exact_outputs)
#define la_exact_queries LA_NAME(exact_queries)
#define la_exact_shrink LA_NAME(exact_shrink)
#define la_exp_core LA_NAME(exp_core)
#define la_exp_end LA_NAME(exp_end)
#define la_exp_full LA_NAME(exp_full)
#define la_exp_negative LA_NAME(exp_negative)
#define la_exponent LA_NAME(exponent)
#define la_fetch_next LA_NAME(fetch_next)
#define la_fetch_nexts LA_NAME(fetch_nexts)
#define la_few_alone LA_NAME(few_alone)
#define la_few_block LA_NAME(few_block)
#define la_few_keys LA_NAME(few_keys)
#define la_few_outputs LA_NAME(few_outputs)
#define la_few_query LA_NAME(few_query)
#define la_few_rows LA_NAME(few_rows)
#define la_few_values LA_NAME(few_values)
#define la_few_weigh LA_NAME(few_weigh)
#define la_first LA_NAME(first)
#define la_flatten LA_NAME(flatten)
#define la_flush LA_NAME(flush)
#define la_fma LA_NAME(fma)
#if LINATTN__ISA == LINATTN__ISA_SSE2
#define la_fma_hot LA_NAME(fma_hot)
#define la_fma_of LA_NAME(fma_of)
#endif
#define la_fma_where LA_NAME(fma_where)
#define la_fms LA_NAME(fms)
#define la_fnma LA_NAME(fnma)
#define la_four_by_four LA_NAME(four_by_four)
#define la_four_columns LA_NAME(four_columns)
#define la_fours LA_NAME(fours)
#define la_group_columns LA_NAME(group_columns)
#define la_gt LA_NAME(gt)
#define la_half_at LA_NAME(half_at)
#define la_half_begin LA_NAME(half_begin)
#define la_half_copy LA_NAME(half_copy)
#define la_half_filled LA_NAME(half_filled)
#define la_half_finish LA_NAME(half_finish)
#define la_half_get LA_NAME(half_get)
#define la_half_get_any LA_NAME(half_get_any)
#define la_half_lanes LA_NAME(half_lanes)
#define la_half_put LA_NAME(half_put)
#define la_half_put_any LA_NAME(half_put_any)
#define la_half_read LA_NAME(half_read)
#define la_half_rows LA_NAME(half_rows)
#define la_half_token LA_NAME(half_token)
#define la_half_wide LA_NAME(half_wide)
#define la_high LA_NAME(high)
#define la_invert LA_NAME(invert)
#define la_is_small LA_NAME(is_small)
#define la_join_high LA_NAME(join_high)
#define la_join_low LA_NAME(join_low)
#define la_key_exponent LA_NAME(key_exponent)
#define la_key_rows LA_NAME(key_rows)
#define la_keep_keys LA_NAME(keep_keys)
#define la_keys LA_NAME(keys)
#define la_keys_rest LA_NAME(keys_rest)
#define la_keys_vectors LA_NAME(keys_vectors)
#define la_lanes LA_NAME(lanes)
#define la_lanes_left LA_NAME(lanes_left)
#define la_ldexp LA_NAME(ldexp)
#define la_le LA_NAME(le)
#define la_level LA_NAME(level)
#define la_lists LA_NAME(lists)
#define la_load LA_NAME(load)
#define la_load_columns LA_NAME(load_columns)
#define la_load_most LA_NAME(load_most)
#define la_load_part LA_NAME(load_part)
#define la_map LA_NAME(map)
#define la_map_columns LA_NAME(map_columns)
#define la_map_features LA_NAME(map_features)
#define la_map_pairs LA_NAME(map_pairs)
#define la_map_vector LA_NAME(map_vector)
#define la_max LA_NAME(max)
#define la_max16 LA_NAME(max16)
#define la_min LA_NAME(min)
#define la_monomials LA_NAME(monomials)
#define la_moves LA_NAME(moves)
#define la_moving LA_NAME(moving)
#define la_mul LA_NAME(mul)
#define la_multiply LA_NAME(multiply)
#define la_multiply_few LA_NAME(multiply_few)
#define la_multiply_pairs LA_NAME(multiply_pairs)
#define la_narrow LA_NAME(narrow)
#define la_negative LA_NAME(negative)
#define la_normal LA_NAME(normal)
#define la_odd LA_NAME(odd)
#define la_offset LA_NAME(offset)
#define la_once_alone LA_NAME(once_alone)
#define la_once_columns LA_NAME(once_columns)
#define la_once_pairs LA_NAME(once_pairs)
#define la_once_read LA_NAME(once_read)
#define la_once_rows LA_NAME(once_rows)
#define la_once_tile LA_NAME(once_tile)
#define la_once_weigh LA_NAME(once_weigh)
#define la_outer LA_NAME(outer)
#define la_outer_single LA_NAME(outer_single)
#define la_outer_tile LA_NAME(outer_tile)
#define la_outer_wide LA_NAME(outer_wide)
#define la_pack LA_NAME(pack)
#define la_pair_places LA_NAME(pair_places)
#define la_panel_exp LA_NAME(panel_exp)
#define la_panel_lanes LA_NAME(panel_lanes)
#define la_panel_part LA_NAME(panel_part)
#define la_panel_phi LA_NAME(panel_phi)
#define la_panel_rows LA_NAME(panel_rows)
#define la_panel_step LA_NAME(panel_step)
#define la_panel_token LA_NAME(panel_token)
#define la_past_divides LA_NAME(past_divides)
#define la_past_factors LA_NAME(past_factors)
#define la_peak LA_NAME(peak)
#define la_phi_key LA_NAME(phi_key)
#define la_phi_query LA_NAME(phi_query)
#define la_pick LA_NAME(pick)
#define la_pick_all LA_NAME(pick_all)
#define la_picked LA_NAME(picked)
#define la_place_lanes LA_NAME(place_lanes)
#define la_places LA_NAME(places)
#define la_plain LA_NAME(plain)
#define la_power LA_NAME(power)
#define la_product LA_NAME(product)
#define la_product_rows LA_NAME(product_rows)
#define la_product_tile LA_NAME(product_tile)
#define la_put_columns LA_NAME(put_columns)
#define la_query_tile LA_NAME(query_tile)
#define la_raise LA_NAME(raise)
#define la_read_columns LA_NAME(read_columns)
#define la_read_tiles LA_NAME(read_tiles)
#define la_reciprocal LA_NAME(reciprocal)
#define la_reduce LA_NAME(reduce)
#define la_rescale LA_NAME(rescale)
#define la_round LA_NAME(round)
#define la_rule_columns LA_NAME(rule_columns)
#define la_rule_columns_of LA_NAME(rule_columns_of)
#define la_rule_decay_rows LA_NAME(rule_decay_rows)
#define la_rule_decayed LA_NAME(rule_decayed)
#define la_rule_due LA_NAME(rule_due)
#define la_rule_due_rows LA_NAME(rule_due_rows)
#define la_rule_fetch LA_NAME(rule_fetch)
#define la_rule_flush_rows LA_NAME(rule_flush_rows)
#define la_rule_is_plain LA_NAME(rule_is_plain)
#define la_rule_lanes LA_NAME(rule_lanes)
#define la_rule_map LA_NAME(rule_map)
#define la_rule_normalise LA_NAME(rule_normalise)
#define la_rule_normalise_rows LA_NAME(rule_normalise_rows)
#define la_rule_out LA_NAME(rule_out)
#define la_rule_prepare LA_NAME(rule_prepare)
#define la_rule_read1 LA_NAME(rule_read1)
#define la_rule_read4 LA_NAME(rule_read4)
#define la_rule_read_rows LA_NAME(rule_read_rows)
#define la_rule_read_tile LA_NAME(rule_read_tile)
#define la_rule_reads LA_NAME(rule_reads)
#define la_rule_row LA_NAME(rule_row)
#define la_rule_row_owed LA_NAME(rule_row_owed)
#define la_rule_rows LA_NAME(rule_rows)
#define la_rule_rows_of LA_NAME(rule_rows_of)
#define la_rule_rows_together LA_NAME(rule_rows_together)
#define la_rule_second LA_NAME(rule_second)
#define la_rule_several LA_NAME(rule_several)
#define la_rule_share LA_NAME(rule_share)
#define la_rule_tile LA_NAME(rule_tile)
#define la_rule_tile1 LA_NAME(rule_tile1)
#define la_rule_tile2 LA_NAME(rule_tile2)
#define la_rule_tile3 LA_NAME(rule_tile3)
#define la_rule_tile4 LA_NAME(rule_tile4)
#define la_rule_together LA_NAME(rule_together)
#define la_rule_tokens LA_NAME(rule_tokens)
#define la_rule_tokens1 LA_NAME(rule_tokens1)
#define la_rule_tokens2 LA_NAME(rule_tokens2)
#define la_rule_tokens4 LA_NAME(rule_tokens4)
#define la_rule_values LA_NAME(rule_values)
#define la_rule_weigh LA_NAME(rule_weigh)
#define la_rule_weigh_most LA_NAME(rule_weigh_most)
#define la_rule_weigh_rows LA_NAME(rule_weigh_rows)
#define la_rule_width LA_NAME(rule_width)
#define la_rule_z_map LA_NAME(rule_z_map)
#define la_run LA_NAME(run)
#define la_scalable LA_NAME(scalable)
#define la_scale LA_NAME(scale)
#define la_scaled_row LA_NAME(scaled_row)
#define la_score_chains LA_NAME(score_chains)
#define la_score_step LA_NAME(score_step)
#define la_scores LA_NAME(scores)
#define la_scores_of LA_NAME(scores_of)
#define la_seen LA_NAME(seen)
#define la_segment LA_NAME(segment)
#define la_segments LA_NAME(segments)
#define la_select LA_NAME(select)
#define la_set1 LA_NAME(set1)
#define la_shift LA_NAME(shift)
#define la_small_factor LA_NAME(small_factor)
#define la_small_heads LA_NAME(small_heads)
#define la_small_key LA_NAME(small_key)
#define la_small_keys LA_NAME(small_keys)
#define la_small_out LA_NAME(small_out)
#define la_small_phi LA_NAME(small_phi)
#define la_small_rows LA_NAME(small_rows)
#define la_small_terms LA_NAME(small_terms)
#define la_small_token LA_NAME(small_token)
#define la_softmax LA_NAME(softmax)
#define la_split LA_NAME(split)
#define la_sqrt LA_NAME(sqrt)
#define la_square_run LA_NAME(square_run)
#define la_squared LA_NAME(squared)
#define la_squares LA_NAME(squares)
#define la_stage LA_NAME(stage)
#define la_stage_begin LA_NAME(stage_begin)
#define la_stage_end LA_NAME(stage_end)
#define la_stage_key LA_NAME(stage_key)
#define la_stage_rest LA_NAME(stage_rest)
#define la_stage_vectors LA_NAME(stage_vectors)
#define la_stage_wide LA_NAME(stage_wide)
#define la_step LA_NAME(step)
#define la_step_both LA_NAME(step_both)
#define la_step_chunk LA_NAME(step_chunk)
#define la_step_end LA_NAME(step_end)
#define la_step_finish LA_NAME(step_finish)
#define la_step_lone LA_NAME(step_lone)
#define la_step_map LA_NAME(step_map)
#define la_step_order LA_NAME(step_order)
#define la_step_padding LA_NAME(step_padding)
#define la_step_part LA_NAME(step_part)
#define la_step_past LA_NAME(step_past)
#define la_step_phi LA_NAME(step_phi)
#define la_step_query LA_NAME(step_query)
#define la_step_read LA_NAME(step_read)
#define la_step_rows LA_NAME(step_rows)
#define la_step_tile LA_NAME(step_tile)
#define la_step_twice LA_NAME(step_twice)
#define la_step_update LA_NAME(step_update)
#define la_step_vectors LA_NAME(step_vectors)
#define la_step_walk LA_NAME(step_walk)
#define la_step_whole LA_NAME(step_whole)
#define la_store LA_NAME(store)
#define la_store_columns LA_NAME(store_columns)
#define la_store_few LA_NAME(store_few)
#define la_store_part LA_NAME(store_part)
#define la_sub LA_NAME(sub)
#define la_sum16 LA_NAME(sum16)
#define la_sum_of LA_NAME(sum_of)
#define la_summed_factor LA_NAME(summed_factor)
#define la_sums16 LA_NAME(sums16)
#define la_table LA_NAME(table)
#define la_take_keys LA_NAME(take_keys)
#define la_take_reads LA_NAME(take_reads)
#define la_tanh LA_NAME(tanh)
#define la_tile_begin LA_NAME(tile_begin)
#define la_tile_end LA_NAME(tile_end)
#define la_tiny LA_NAME(tiny)
#define la_transpose LA_NAME(transpose)
#define la_turn LA_NAME(turn)
#define la_twice_tile LA_NAME(twice_tile)
#define la_two_sum LA_NAME(two_sum)
#define la_unit LA_NAME(unit)
#define la_unit_of LA_NAME(unit_of)
#define la_unit_root LA_NAME(unit_root)
#define la_unordered LA_NAME(unordered)
#define la_update_columns LA_NAME(update_columns)
#define la_update_vectors LA_NAME(update_vectors)
#define la_upheld LA_NAME(upheld)
#define la_values LA_NAME(values)
#define la_weigh LA_NAME(weigh)
#define la_weigh_vectors LA_NAME(weigh_vectors)
#define la_weigh_query LA_NAME(weigh_query)
#define la_weighed LA_NAME(weighed)
#define la_wide LA_NAME(wide)
#define la_wide_eight LA_NAME(wide_eight)
#define la_widen LA_NAME(widen)
#define la_widen_row LA_NAME(widen_row)
#define la_widened LA_NAME(widened)
#define la_zero LA_NAME(zero)
#define la_zip_high LA_NAME(zip_high)
#define la_zip_low LA_NAME(zip_low)

/* And the names of what is cold. */
#define la_all_finite LA_COMMON(all_finite)
#define la_band_keep LA_COMMON(band_keep)
#define la_beyond LA_COMMON(beyond)
#define la_both_signs LA_COMMON(both_signs)
#define la_cancel LA_COMMON(cancel)
#define la_chain_key LA_COMMON(chain_key)
#define la_chain_load LA_COMMON(chain_load)
#define la_chain_store LA_COMMON(chain_store)
#define la_double_exp LA_COMMON(double_exp)
#define la_end_rows LA_COMMON(end_rows)
#define la_factor LA_COMMON(factor)
#define la_few_added LA_COMMON(few_added)
#define la_few_chains LA_COMMON(few_chains)
#define la_few_one LA_COMMON(few_one)
#define la_few_places LA_COMMON(few_places)
#define la_few_scores LA_COMMON(few_scores)
#define la_few_several LA_COMMON(few_several)
#define la_few_tile LA_COMMON(few_tile)
#define la_fewer LA_COMMON(fewer)
#define la_fold LA_COMMON(fold)
#define la_fold_vector LA_COMMON(fold_vector)
#define la_fold_vectors LA_COMMON(fold_vectors)
#define la_half LA_COMMON(half)
#define la_half_open LA_COMMON(half_open)
#define la_map_softmax LA_COMMON(map_softmax)
#define la_map_unit LA_COMMON(map_unit)
#define la_mass LA_COMMON(mass)
#define la_mean_component LA_COMMON(mean_component)
#define la_mean_row LA_COMMON(mean_row)
#define la_mean_vectors LA_COMMON(mean_vectors)
#define la_means LA_COMMON(means)
#define la_measure LA_COMMON(measure)
#define la_merge LA_COMMON(merge)
#define la_merge_row LA_COMMON(merge_row)
#define la_mirror LA_COMMON(mirror)
#define la_norms LA_COMMON(norms)
#define la_once LA_COMMON(once)
#define la_once_decay LA_COMMON(once_decay)
#define la_once_decays LA_COMMON(once_decays)
#define la_once_each LA_COMMON(once_each)
#define la_once_flush LA_COMMON(once_flush)
#define la_once_gate LA_COMMON(once_gate)
#define la_once_head LA_COMMON(once_head)
#define la_once_map LA_COMMON(once_map)
#define la_once_mlstm LA_COMMON(once_mlstm)
#define la_once_multiplied LA_COMMON(once_multiplied)
#define la_once_outputs LA_COMMON(once_outputs)
#define la_once_powers LA_COMMON(once_powers)
#define la_once_rarely LA_COMMON(once_rarely)
#define la_once_tiles LA_COMMON(once_tiles)
#define la_once_usual LA_COMMON(once_usual)
#define la_once_values LA_COMMON(once_values)
#define la_part_middle LA_COMMON(part_middle)
#define la_past_weights LA_COMMON(past_weights)
#define la_polynomials LA_COMMON(polynomials)
#define la_put_values LA_COMMON(put_values)
#define la_recurrent LA_COMMON(recurrent)
#define la_rescale_row LA_COMMON(rescale_row)
#define la_residual LA_COMMON(residual)
#define la_rule_afresh LA_COMMON(rule_afresh)
#define la_rule_after LA_COMMON(rule_after)
#define la_rule_alike LA_COMMON(rule_alike)
#define la_rule_are_few LA_COMMON(rule_are_few)
#define la_rule_begin LA_COMMON(rule_begin)
#define la_rule_block LA_COMMON(rule_block)
#define la_rule_chunk LA_COMMON(rule_chunk)
#define la_rule_correct LA_COMMON(rule_correct)
#define la_rule_credit LA_COMMON(rule_credit)
#define la_rule_debts LA_COMMON(rule_debts)
#define la_rule_decay LA_COMMON(rule_decay)
#define la_rule_decays LA_COMMON(rule_decays)
#define la_rule_due_tokens LA_COMMON(rule_due_tokens)
#define la_rule_end LA_COMMON(rule_end)
#define la_rule_exponents LA_COMMON(rule_exponents)
#define la_rule_factors LA_COMMON(rule_factors)
#define la_rule_finish LA_COMMON(rule_finish)
#define la_rule_floor LA_COMMON(rule_floor)
#define la_rule_flush LA_COMMON(rule_flush)
#define la_rule_fold LA_COMMON(rule_fold)
#define la_rule_fold_vector LA_COMMON(rule_fold_vector)
#define la_rule_gate LA_COMMON(rule_gate)
#define la_rule_gates LA_COMMON(rule_gates)
#define la_rule_half LA_COMMON(rule_half)
#define la_rule_halves LA_COMMON(rule_halves)
#define la_rule_heads LA_COMMON(rule_heads)
#define la_rule_is_once LA_COMMON(rule_is_once)
#define la_rule_keys LA_COMMON(rule_keys)
#define la_rule_ldexp LA_COMMON(rule_ldexp)
#define la_rule_lead LA_COMMON(rule_lead)
#define la_rule_left LA_COMMON(rule_left)
#define la_rule_once LA_COMMON(rule_once)
#define la_rule_ones LA_COMMON(rule_ones)
#define la_rule_owe LA_COMMON(rule_owe)
#define la_rule_owe_each LA_COMMON(rule_owe_each)
#define la_rule_owe_rows LA_COMMON(rule_owe_rows)
#define la_rule_owed_each LA_COMMON(rule_owed_each)
#define la_rule_padding LA_COMMON(rule_padding)
#define la_rule_past LA_COMMON(rule_past)
#define la_rule_past_end LA_COMMON(rule_past_end)
#define la_rule_pay LA_COMMON(rule_pay)
#define la_rule_pay_rows LA_COMMON(rule_pay_rows)
#define la_rule_powers LA_COMMON(rule_powers)
#define la_rule_queries LA_COMMON(rule_queries)
#define la_rule_quiet LA_COMMON(rule_quiet)
#define la_rule_read LA_COMMON(rule_read)
#define la_rule_scale LA_COMMON(rule_scale)
#define la_rule_settle LA_COMMON(rule_settle)
#define la_rule_single LA_COMMON(rule_single)
#define la_rule_singles LA_COMMON(rule_singles)
#define la_rule_spend LA_COMMON(rule_spend)
#define la_rule_spends LA_COMMON(rule_spends)
#define la_rule_split LA_COMMON(rule_split)
#define la_rule_stabilise LA_COMMON(rule_stabilise)
#define la_rule_turn LA_COMMON(rule_turn)
#define la_rule_weigh_queries LA_COMMON(rule_weigh_queries)
#define la_rule_weighed LA_COMMON(rule_weighed)
#define la_scale_rows LA_COMMON(scale_rows)
#define la_settle LA_COMMON(settle)
#define la_shrink LA_COMMON(shrink)
#define la_small_norm LA_COMMON(small_norm)
#define la_small_other LA_COMMON(small_other)
#define la_small_step LA_COMMON(small_step)
#define la_softmax_columns LA_COMMON(softmax_columns)
#define la_square LA_COMMON(square)
#define la_step_alone LA_COMMON(step_alone)
#define la_step_halves LA_COMMON(step_halves)
#define la_step_heads LA_COMMON(step_heads)
#define la_step_one LA_COMMON(step_one)
#define la_step_parts LA_COMMON(step_parts)
#define la_step_roots LA_COMMON(step_roots)
#define la_step_some LA_COMMON(step_some)
#define la_step_tiled LA_COMMON(step_tiled)
#define la_step_token LA_COMMON(step_token)
#define la_step_two LA_COMMON(step_two)
#define la_tile_fetch LA_COMMON(tile_fetch)
#define la_times LA_COMMON(times)

/* And of what all sets share. */
#define la_add_kept LA_SHARED(add_kept)
#define la_afresh LA_SHARED(afresh)
#define la_alike LA_SHARED(alike)
#define la_always_apart LA_SHARED(always_apart)
#define la_append LA_SHARED(append)
#define la_band LA_SHARED(band)
#define la_band_apart LA_SHARED(band_apart)
#define la_band_begin LA_SHARED(band_begin)
#define la_band_block LA_SHARED(band_block)
#define la_band_count LA_SHARED(band_count)
#define la_band_end LA_SHARED(band_end)
#define la_band_query LA_SHARED(band_query)
#define la_band_run LA_SHARED(band_run)
#define la_band_shift LA_SHARED(band_shift)
#define la_band_still LA_SHARED(band_still)
#define la_band_tokens LA_SHARED(band_tokens)
#define la_block LA_SHARED(block)
#define la_block_chunk LA_SHARED(block_chunk)
#define la_block_run LA_SHARED(block_run)
#define la_causal LA_SHARED(causal)
#define la_chunk LA_SHARED(chunk)
#define la_chunk_inputs LA_SHARED(chunk_inputs)
#define la_chunk_made LA_SHARED(chunk_made)
#define la_clear_columns LA_SHARED(clear_columns)
#define la_clear_padding LA_SHARED(clear_padding)
#define la_columns LA_SHARED(columns)
#define la_finish LA_SHARED(finish)
#define la_head LA_SHARED(head)
#define la_inputs LA_SHARED(inputs)
#define la_inverse LA_SHARED(inverse)
#define la_inverse_end LA_SHARED(inverse_end)
#define la_iterate LA_SHARED(iterate)
#define la_is_beyond LA_SHARED(is_beyond)
#define la_kept_alike LA_SHARED(kept_alike)
#define la_kept_signs LA_SHARED(kept_signs)
#define la_made LA_SHARED(made)
#define la_masked_tokens LA_SHARED(masked_tokens)
#define la_most LA_SHARED(most)
#define la_panels LA_SHARED(panels)
#define la_part LA_SHARED(part)
#define la_part_add LA_SHARED(part_add)
#define la_part_clear LA_SHARED(part_clear)
#define la_part_signs LA_SHARED(part_signs)
#define la_past_run LA_SHARED(past_run)
#define la_past_z LA_SHARED(past_z)
#define la_peaks LA_SHARED(peaks)
#define la_place LA_SHARED(place)
#define la_project LA_SHARED(project)
#define la_project_tokens LA_SHARED(project_tokens)
#define la_projection LA_SHARED(projection)
#define la_put_kept LA_SHARED(put_kept)
#define la_query LA_SHARED(query)
#define la_query_block LA_SHARED(query_block)
#define la_rows LA_SHARED(rows)
#define la_rule LA_SHARED(rule)
#define la_rule_head LA_SHARED(rule_head)
#define la_rule_kind LA_SHARED(rule_kind)
#define la_rule_open LA_SHARED(rule_open)
#define la_rule_size LA_SHARED(rule_size)
#define la_rule_span LA_SHARED(rule_span)
#define la_rule_spend_rows LA_SHARED(rule_spend_rows)
#define la_rule_spread LA_SHARED(rule_spread)
#define la_scratch LA_SHARED(scratch)
#define la_step_make LA_SHARED(step_make)
#define la_step_others LA_SHARED(step_others)
#define la_symmetric LA_SHARED(symmetric)
#define la_take LA_SHARED(take)
#define la_take_others LA_SHARED(take_others)
#define la_take_run LA_SHARED(take_run)
#define la_tile LA_SHARED(tile)
#define la_tiles LA_SHARED(tiles)
#define la_token LA_SHARED(token)
#define la_tokens LA_SHARED(tokens)
#define la_trace LA_SHARED(trace)
#define la_untame LA_SHARED(untame)
#define la_update LA_SHARED(update)
#define la_update_block LA_SHARED(update_block)
#define la_update_few LA_SHARED(update_few)
#define la_update_run LA_SHARED(update_run)
#define la_visible LA_SHARED(visible)

/* ==== (A) The vocabulary ======================================================================

   la_load_part(p, n)     lanes 0..n-1 from p, zeros above; reads nothing else. 0 <= n <= LA_W
   la_first(a, b, n)      lanes 0..n-1 of a, the others of b
   la_fma/fms/fnma(a,b,c) a*b+c, a*b-c, c-a*b, rounded once; la_fma_hot: where a is the same in all
                          lanes, for innermost loops, as SSE2 calls the others
   la_max(a, b)           a > b ? a : b, so that a NaN in b comes through; la_min likewise
   la_gt, la_eq           false where either is NaN
   la_shift(p, n)         p, an integer n added to the bits of its exponent, or nothing for NaN.
                          With la_le and la_clear(m, x), 0 where m, else x, for sets of 4 and 8
   la_scale(p, n)         p * 2^n for an integer n <= 127 and p in [.5, 2); 0 where n <= -126
   la_scalable(x)         x, clamped to +-100 where la_scale needs a finite p even for n <= -126
                          and an n that fits an int even where its result is of no use
   la_exp_end(p, n, x)    e^x = p * 2^n where that is a normal float, from EXP_LOW to EXP_HIGH; 0
                          below, inf above whatever p and n are, NaN for NaN
   la_capped(x)           x, lowered to 89 where la_exp_end needs a finite p even above
   la_ldexp(p, n)         p * 2^n, n <= 129, rounded once, inf beyond FLT_MAX, 0 below FLT_MIN
   la_between(x, a, b)    optional, with LA_BETWEEN: are all in [a, b], 0 < a < b, and none is NaN?
   la_normal(x)           optional, with LA_NORMAL: x, 0 where it is denormal
   la_reciprocal(x)       optional, with LA_RECIPROCAL: 1 / x, rounded once, for 1 <= x <= 2^100
   la_by_sign(x, a, b)    optional, with LA_BY_SIGN: a where x < 0, else b; either where x is -0,
                          denormal or NaN
   la_sum16(a)            the sum of 16 / LA_W vectors by the fixed tree; la_max16 the largest
   la_sums16(a, count)    optional, with LA_SUMS16: see there
   la_store_few(p, a, n)  optional, with LA_STORE_FEW: la_store_part for the outputs of small heads,
                          where a slow one would be most of the time
   la_pick(low, high, p)  optional, with LA_PICK: those of 32 floats whose places are the bits at p
   la_transpose(p, s, a)  a square matrix of LA_W rows, from p on, s apart: a[i] is its column i.
                          la_four_columns(p, s, a): of its first four. For which:
   la_fours(p, s)         fours of floats from p, p + s and so on: loads that put fours of rows
                          side by side spare AVX2 a third of the shuffles, AVX-512 half
   la_zip_low, _high(a,b) within fours: a's and b's low (high) two by turns
   la_join_low, _high     within fours: a's low (high) two, then b's
   la_wide(p, bf)         LA_W numbers of 16 bits from p, of bfloat16 where bf is not 0
   la_wide_eight(p, bf)   eight such numbers, where LA_W is 16
   la_power(x)            the power of two in x, inf for NaN
   la_narrow(p, x, bf)    x as such numbers goes to p: rounded to nearest even as f16, and returned
                          as what it then is; but bf16 is cut off
   la_bits(m)             a mask as an integer, lane 0 in its lowest bit
   la_sqrt(x)             of one float, rounded once

   LA_DW, la_dvec and the words la_d... are the same for doubles, of which Nystroem's pseudo-inverse
   needs a few, and the denominators of the identity:
   la_dwiden(p)           LA_DW floats from p
   la_dscale(p, t)        p * 2^n for t = n + 1.5 * 2^52, both results normal
   la_dflush(x)           x, 0 where it is below 2^-128 in size

   LA_CAUSAL_TOKENS x LA_CAUSAL_VECS    the tile of causal: tokens x vectors of columns; of tokens
                                        that are left over LA_CAUSAL_FEW at a time
   LA_CAUSAL_TALL x 1                   that of a single vector
   LA_CAUSAL_WIDE x 4                   that of four vectors, 0 where the registers do not hold it
   LA_GROUP_TOKENS x LA_CAUSAL_VECS     its tile for two query heads of a group; for four heads half
                                        the tokens
   LA_QUERY_TOKENS x LA_QUERY_VECS      the tile of query, LA_QUERY_FEW and LA_QUERY_TALL
   LA_UPDATE_ROWS x LA_UPDATE_VECS      the tile of update: features x vectors of columns, and of
                                        products of matrices of doubles
   LA_UPDATE_TALL x 1                   that of a single vector
   LA_UPDATE_ROWS x LA_EXACT_VECS       the tiles of exact attention: keys or columns x vectors of
                                        queries, at most 48 queries, and one more vector than
                                        in update's at most
   LA_SCORE_ROWS                        keys in that of its scores, which takes LA_SCORE_CHAINS of
                                        their chains at a time
   LA_STAGE_VECS                        vectors of features that are mapped side by side: 1, or
                                        a multiple of 16 / LA_W or a divisor of it
   LA_BLOCK                             tokens mapped into scratch at a time
   LA_PART                              the same for update, both tokens and features. These two
                                        are set by the stack and by L1
   LA_STEP                              features that the kernel of one token maps at a time; these
                                        three are the same for AVX2 and AVX-512, which share scratch
   LA_GENERAL_VECS                      vectors of columns in a tile of the rule GENERAL, which
                                        takes the most registers
   LA_GATED_TOKENS x LA_GATED_VECS      the tile of rules without reads, where it takes several
                                        tokens at a time

   Operators on vectors, where the compiler has them: clang compiles the intrinsics for arithmetic
   with what was in force where their header was included, -ffast-math perhaps. MSVC has intrinsics
   only; what they are cast to is their own type. LA_SURELY: what costs little is done rather than
   asked for, where the answer is not known before. */
#if LINATTN__MSVC
#define LA_SURELY(x) (x)
#define LA_OP(a, operation, b, intrinsic) intrinsic(a, b)
#define LA_COMPARE(type, a, comparison, b, intrinsic, predicate) intrinsic(a, b, predicate)
#else
#define LA_SURELY(x) (__builtin_constant_p(x) && (x))
#define LA_OP(a, operation, b, intrinsic) ((a)operation(b))
#define LA_COMPARE(type, a, comparison, b, intrinsic, predicate) ((type)((a)comparison(b)))
#endif

#if LINATTN__HAS_UNIT && (LINATTN__ISA == LINATTN__ISA_AVX512 ||                                   \
                          LINATTN__ISA == LINATTN__ISA_AVX2 || LINATTN__ISA == LINATTN__ISA_SSE2)
LINATTN__INLINE float la_sqrt(float x)
{
#if defined(__clang__) && defined(__FAST_MATH__) && !LINATTN__MSVC /* it takes an estimate */
#if LINATTN__ISA == LINATTN__ISA_SSE2
    __asm__("sqrtss %0, %0" : "+x"(x));
#else
    __asm__("vsqrtss %0, %0, %0" : "+x"(x));
#endif
    return x;
#else
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
#endif
}
#endif

#if LINATTN__ISA == LINATTN__ISA_SCALAR

#if LINATTN__TO_BE_SMALL || LINATTN__COUNT > 1
#define LA_SMALL 1
#else
#define LA_SMALL 4
#endif
#define LA_W 1
#define la_vec float
#define la_mask int
#define LA_CAUSAL_TOKENS 1
#define LA_CAUSAL_FEW 1
#define LA_CAUSAL_VECS LA_SMALL
#define LA_CAUSAL_TALL 1
#define LA_CAUSAL_WIDE 0
#define LA_GROUP_TOKENS 1
#define LA_QUERY_TOKENS 1
#define LA_QUERY_FEW 1
#define LA_QUERY_VECS LA_SMALL
#define LA_QUERY_TALL 1
#define LA_UPDATE_ROWS LA_SMALL
#define LA_UPDATE_VECS 1
#define LA_UPDATE_TALL LA_SMALL
#define LA_EXACT_VECS 1
#define LA_SCORE_ROWS 1
#define LA_SCORE_CHAINS 8
#define LA_STAGE_VECS 1
#define LA_BLOCK (LINATTN__BOTH ? 24 : 1)
#define LA_PART (LINATTN__BOTH ? 64 : 16)
/* for vectors, too; and a past is read chunk by chunk */
#define LA_STEP (LINATTN__BOTH || LINATTN__HAS_COMPENSATED ? 128 : 16)
/* Columns of a rule's tile: one alone would wait for each of its sums. Not where scalar code is
   what other sets fall back on, nor with clang for size, which unrolls no loop over them. */
#if LINATTN__COUNT > 1 || (defined(__clang__) && LINATTN__TO_BE_SMALL)
#define LA_GENERAL_VECS 1
#else
#define LA_GENERAL_VECS 4
#endif

LINATTN__INLINE float la_zero(void) { return 0.0f; }
LINATTN__INLINE float la_set1(float x) { return x; }
LINATTN__INLINE float la_load(const float *p) { return *p; }
LINATTN__INLINE void la_store(float *p, float a) { *p = a; }
LINATTN__INLINE float la_load_part(const float *p, int n)
{
    if (n > 0) return *p;
    return 0.0f;
}
LINATTN__INLINE void la_store_part(float *p, float a, int n)
{
    if (n > 0) *p = a;
}
LINATTN__INLINE float la_first(float a, float b, int n)
{
    if (n > 0) b = a;
    return b;
}
LINATTN__INLINE float la_add(float a, float b) { return a + b; }
LINATTN__INLINE float la_sub(float a, float b) { return a - b; }
LINATTN__INLINE float la_mul(float a, float b) { return a * b; }
LINATTN__INLINE float la_div(float a, float b) { return a / b; }
#ifdef LA_FUSED /* the instruction */
LINATTN__INLINE float la_fma(float a, float b, float c) { return LINATTN__FMA(a, b, c); }
LINATTN__INLINE float la_fms(float a, float b, float c) { return LINATTN__FMA(a, b, -c); }
LINATTN__INLINE float la_fnma(float a, float b, float c) { return LINATTN__FMA(-a, b, c); }
#else
LINATTN__INLINE float la_fma(float a, float b, float c) { return linattn__fma(a, b, c); }
LINATTN__INLINE float la_fms(float a, float b, float c) { return linattn__fma(a, b, -c); }
LINATTN__INLINE float la_fnma(float a, float b, float c) { return linattn__fma(-a, b, c); }
#endif
/* Statements, not ?: on floats: under -ffast-math clang takes its operands to be no NaN,
   whatever the pragma says. */
LINATTN__INLINE float la_max(float a, float b)
{
    if (a > b) b = a;
    return b;
}
LINATTN__INLINE float la_min(float a, float b)
{
    if (a < b) b = a;
    return b;
}
LINATTN__INLINE int la_gt(float a, float b) { return a > b; }
LINATTN__INLINE int la_eq(float a, float b) { return a == b; }
LINATTN__INLINE float la_select(int m, float a, float b)
{
    if (m) b = a;
    return b;
}
LINATTN__INLINE int la_any(int m) { return m; }
LINATTN__INLINE float la_scale(float p, float n)
{
    if (n > -126.0f) return p * linattn__pow2((int)n);
    if (n <= -126.0f) return p * 0.0f;
    return p + n; /* NaN */
}
LINATTN__INLINE float la_scalable(float x) { return la_min(100.0f, la_max(-100.0f, x)); }
LINATTN__INLINE float la_capped(float x) { return x; }
LINATTN__INLINE float la_exp_end(float p, float n, float x)
{
    if (!(x <= LINATTN__EXP_HIGH)) return x * LINATTN__FLT_MAX;
    if (x < LINATTN__EXP_LOW) return 0.0f;
    return linattn__from_bits(linattn__to_bits(p) + ((uint32_t)(int)n << 23));
}
LINATTN__INLINE float la_ldexp(float p, float n)
{
    float r;
    if (n < -126.0f) return p * 0.0f;
    if (n > 127.0f)
        r = la_fma(p, n - 127.0f, p) * linattn__pow2(127);
    else if (n >= -126.0f)
        r = p * linattn__pow2((int)n);
    else
        return p + n; /* NaN */
    if (r < LINATTN__FLT_MIN) r = 0.0f;
    return r;
}
LINATTN__INLINE float la_sum16(const float *a)
{
    float s[8];
    int i;
    for (i = 0; i < 8; i++) s[i] = a[i] + a[i + 8];
    for (i = 0; i < 4; i++) s[i] = s[i] + s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}
LINATTN__INLINE float la_max16(const float *a)
{
    float m = a[0];
    int i;
    for (i = 1; i < 16; i++) m = la_max(m, a[i]);
    return m;
}
LINATTN__INLINE void la_transpose(const float *from, size_t stride, float *a)
{
    (void)stride;
    a[0] = *from;
}
#if LINATTN__HAS_HALF || LINATTN__HAS_EXACT
LINATTN__INLINE float la_wide(const void *p, int bf)
{
    uint16_t half;
    linattn__copy(&half, p, sizeof half);
    if (bf) return linattn__from_bits((uint32_t)half << 16);
    return linattn__from_half(half);
}
#endif
#if LINATTN__HAS_UNIT
LINATTN__INLINE float la_sqrt(float x)
{
    if (x <= LINATTN__FLT_MAX) x = linattn__root(x);
    return x;
}
#endif
LINATTN__INLINE unsigned la_bits(int m) { return (unsigned)m; }
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE float Sleef_expf_u10(float);
#define LA_SLEEF Sleef_expf_u10
#endif

#if LINATTN__HAS_NYSTROM || LINATTN__HAS_SIGNED
#define LA_DW 1
#define la_dvec double
LINATTN__INLINE void la_dstore(double *p, double a) { *p = a; }
LINATTN__INLINE double la_dwiden(const float *p) { return (double)*p; }
#endif
LINATTN__INLINE double la_dset1(double x) { return x; }
LINATTN__INLINE double la_dadd(double a, double b) { return a + b; }
#if LINATTN__HAS_NYSTROM
LINATTN__INLINE double la_dload(const double *p) { return *p; }
LINATTN__INLINE double la_dsub(double a, double b) { return a - b; }
LINATTN__INLINE double la_dmul(double a, double b) { return a * b; }
LINATTN__INLINE double la_ddiv(double a, double b) { return a / b; }
LINATTN__INLINE double la_dfma(double a, double b, double c)
{
#ifdef LA_FUSED
    return LINATTN__DOUBLE_FMA(a, b, c);
#else
    return linattn__double_fma(a, b, c);
#endif
}
LINATTN__INLINE double la_dmax(double a, double b)
{
    if (a > b) b = a;
    return b;
}
LINATTN__INLINE double la_dscale(double p, double t)
{
    union {
        uint64_t u;
        double f;
    } x, y;
    x.f = p;
    y.f = t;
    x.u += y.u << 52;
    return x.f;
}
LINATTN__INLINE double la_dflush(double x)
{
    if (x < LINATTN__TINY && x > -LINATTN__TINY) x = 0.0;
    return x;
}
#endif

#elif LINATTN__ISA == LINATTN__ISA_AVX512

#define LA_W 16
#define la_vec __m512
#define la_mask __mmask16
#define LA_CAUSAL_TOKENS 4
#define LA_CAUSAL_FEW 2
#define LA_CAUSAL_VECS 2
#define LA_CAUSAL_TALL 6
#define LA_CAUSAL_WIDE 3
#define LA_GROUP_TOKENS 4
#define LA_QUERY_TOKENS 12
#define LA_QUERY_FEW 4
#define LA_QUERY_VECS 2
#define LA_QUERY_TALL 8
#define LA_UPDATE_ROWS 8
#define LA_UPDATE_VECS 2
#define LA_UPDATE_TALL 8
#define LA_EXACT_VECS 3
#define LA_SCORE_ROWS 4
#define LA_SCORE_CHAINS 1
#define LA_STAGE_VECS 2
#define LA_BLOCK 24
#define LA_PART 64
#define LA_STEP 128
#define LA_GENERAL_VECS 4
#define LA_GATED_TOKENS 3
#define LA_GATED_VECS 4

LINATTN__INLINE __mmask16 la_lanes(int n) { return (__mmask16)((1u << n) - 1u); }
LINATTN__INLINE la_vec la_zero(void) { return _mm512_setzero_ps(); }
LINATTN__INLINE la_vec la_set1(float x) { return _mm512_set1_ps(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return _mm512_loadu_ps(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { _mm512_storeu_ps(p, a); }
LINATTN__INLINE la_vec la_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(la_lanes(n), p);
}
LINATTN__INLINE void la_store_part(float *p, la_vec a, int n)
{
    _mm512_mask_storeu_ps(p, la_lanes(n), a);
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    return _mm512_mask_mov_ps(b, la_lanes(n), a);
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return LA_OP(a, +, b, _mm512_add_ps); }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return LA_OP(a, -, b, _mm512_sub_ps); }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return LA_OP(a, *, b, _mm512_mul_ps); }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return LA_OP(a, /, b, _mm512_div_ps); }
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c) { return _mm512_fmadd_ps(a, b, c); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c) { return _mm512_fmsub_ps(a, b, c); }
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c) { return _mm512_fnmadd_ps(a, b, c); }
#if defined(__clang__) && !LINATTN__MSVC
/* Under -ffast-math clang takes the operands of these intrinsics to be no NaN, whatever the pragma
   says; forms without exceptions, and comparisons by operator, keep their meaning. */
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b)
{
    return _mm512_max_round_ps(a, b, _MM_FROUND_NO_EXC);
}
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b)
{
    return _mm512_min_round_ps(a, b, _MM_FROUND_NO_EXC);
}
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b)
{
    const __m512i m = (__m512i)(a > b);
    return _mm512_test_epi32_mask(m, m);
}
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b)
{
    const __m512i m = (__m512i)(a == b);
    return _mm512_test_epi32_mask(m, m);
}
#else
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return _mm512_max_ps(a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return _mm512_min_ps(a, b); }
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
#endif
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b)
{
    return _mm512_mask_mov_ps(b, m, a);
}
LINATTN__INLINE la_vec la_fma_where(la_mask m, la_vec a, la_vec b, la_vec c)
{
    return _mm512_mask3_fmadd_ps(a, b, c, m);
}
LINATTN__INLINE int la_any(la_mask m) { return m != 0; }
#define LA_BETWEEN
/* As integers, in which what is negative or NaN comes last. */
LINATTN__INLINE int la_between(la_vec x, float low, float high)
{
    const __m512i first = _mm512_castps_si512(la_set1(low));
    const __m512i room = _mm512_sub_epi32(_mm512_castps_si512(la_set1(high)), first);
    return !_mm512_cmpgt_epu32_mask(_mm512_sub_epi32(_mm512_castps_si512(x), first), room);
}
#define LA_NORMAL
LINATTN__INLINE la_vec la_normal(la_vec x)
{
    const __m512i exponent = _mm512_set1_epi32(0x7f800000);
    return _mm512_maskz_mov_ps(_mm512_test_epi32_mask(_mm512_castps_si512(x), exponent), x);
}
#define LA_RECIPROCAL
/* A division takes as long as ten other instructions. An estimate to 2^-14, then twice Newton; the
   first time rounded upwards, or 1/x for a significand of all ones would be rounded to the wrong
   side. So it is right for every significand, whatever the estimate. */
LINATTN__INLINE la_vec la_reciprocal(la_vec x)
{
    const la_vec one = la_set1(1.0f), guess = _mm512_rcp14_ps(x);
    const la_vec y = _mm512_fmadd_round_ps(la_fnma(x, guess, one), guess, guess,
                                           _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    return la_fma(la_fnma(x, y, one), y, y);
}
LINATTN__INLINE la_vec la_scale(la_vec p, la_vec n)
{
    const la_mask flush = la_gt(la_set1(-125.0f), n);
    return _mm512_maskz_scalef_ps((la_mask)~flush, p, n);
}
LINATTN__INLINE la_vec la_scalable(la_vec x) { return x; }
LINATTN__INLINE la_vec la_capped(la_vec x) { return la_min(la_set1(89.0f), x); }
LINATTN__INLINE la_vec la_exp_end(la_vec p, la_vec n, la_vec x)
{
    const la_mask flush = la_gt(la_set1(LINATTN__EXP_LOW), x);
    return _mm512_maskz_scalef_ps((la_mask)~flush, p, n);
}
LINATTN__INLINE la_vec la_ldexp(la_vec p, la_vec n)
{
    const la_vec r = _mm512_scalef_ps(p, n);
    return la_select(la_gt(la_set1(LINATTN__FLT_MIN), r), la_zero(), r);
}
LINATTN__INLINE __m256 la_high(la_vec a)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const __m256 low = _mm512_castps512_ps256(a[0]);
    const __m256 b = LA_OP(low, +, la_high(a[0]), _mm256_add_ps);
    const __m128 c = _mm256_castps256_ps128(b), d = _mm256_extractf128_ps(b, 1);
    const __m128 e = LA_OP(c, +, d, _mm_add_ps);
    const __m128 f = LA_OP(e, +, _mm_movehl_ps(e, e), _mm_add_ps);
    return _mm_cvtss_f32(LA_OP(f, +, _mm_shuffle_ps(f, f, 1), _mm_add_ps));
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    const la_vec b = la_max(a[0], _mm512_shuffle_f32x4(a[0], a[0], 0x4e));
    const la_vec c = la_max(b, _mm512_shuffle_f32x4(b, b, 0xb1));
    const la_vec d = la_max(c, _mm512_permute_ps(c, 0x4e));
    return _mm_cvtss_f32(_mm512_castps512_ps128(la_max(d, _mm512_permute_ps(d, 0xb1))));
}
LINATTN__INLINE la_vec la_fours(const float *row, size_t stride)
{
    const __m256 x = _mm256_castps128_ps256(_mm_loadu_ps(row));
    la_vec b = _mm512_castps256_ps512(_mm256_insertf128_ps(x, _mm_loadu_ps(row + stride), 1));
    b = _mm512_insertf32x4(b, _mm_loadu_ps(row + 2 * stride), 2);
    return _mm512_insertf32x4(b, _mm_loadu_ps(row + 3 * stride), 3);
}
LINATTN__INLINE la_vec la_zip_low(la_vec a, la_vec b) { return _mm512_unpacklo_ps(a, b); }
LINATTN__INLINE la_vec la_zip_high(la_vec a, la_vec b) { return _mm512_unpackhi_ps(a, b); }
LINATTN__INLINE la_vec la_join_low(la_vec a, la_vec b)
{
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
LINATTN__INLINE la_vec la_join_high(la_vec a, la_vec b)
{
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
#define LA_SUMS16 /* a tenth of causal's time at (16,16) */
LINATTN__INLINE la_vec la_sums16(const float *a, size_t count)
{
    la_vec b[16], x, y;
    size_t i, t;
    LINATTN__UNROLL for (t = 0; t < 16; t++)
    {
        b[t / 4 + t % 4 * 4] = la_load(a); /* the shuffles transpose them */
        a += (size_t)(t + 1 < count) * 16;
    }
    LINATTN__UNROLL for (i = 0; i < 8; i++)
    {
        x = _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x44);
        y = _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xee);
        b[i] = la_add(x, y);
    }
    LINATTN__UNROLL for (i = 0; i < 4; i++)
    {
        x = _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88);
        y = _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd);
        b[i] = la_add(x, y);
    }
    LINATTN__UNROLL for (i = 0; i < 2; i++) b[i] =
        la_add(la_join_low(b[2 * i], b[2 * i + 1]), la_join_high(b[2 * i], b[2 * i + 1]));
    return la_add(_mm512_shuffle_ps(b[0], b[1], 0x88), _mm512_shuffle_ps(b[0], b[1], 0xdd));
}
#define LA_PICK
LINATTN__INLINE la_vec la_pick(la_vec low, la_vec high, const float *places)
{
    return _mm512_permutex2var_ps(low, _mm512_castps_si512(la_load(places)), high);
}
#if LINATTN__HAS_HALF || LINATTN__HAS_EXACT
LINATTN__INLINE la_vec la_widened(__m256i half, int bf)
{
    if (!bf) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
LINATTN__INLINE la_vec la_wide(const void *p, int bf)
{
    return la_widened(_mm256_loadu_si256((const __m256i *)p), bf);
}
#if LINATTN__HAS_EXACT && !LINATTN__BOTH
LINATTN__INLINE la_vec la_wide_eight(const void *p, int bf)
{
    const __m128i half = _mm_loadu_si128((const __m128i *)p);
    return la_widened(_mm256_inserti128_si256(_mm256_setzero_si256(), half, 0), bf);
}
#endif
#endif
#if LINATTN__HAS_HALF
LINATTN__INLINE la_vec la_power(la_vec x)
{
    const __m512i power = _mm512_set1_epi32(0x7f800000);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), power));
}
LINATTN__INLINE la_vec la_narrow(void *p, la_vec x, int bf)
{
    __m256i half;
    if (bf)
        half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16));
    else
        half = _mm512_maskz_cvtps_ph(0xffff, x, 0); /* gcc 12 warns of the one without a mask */
    _mm256_storeu_si256((__m256i *)p, half);
    return bf ? x : _mm512_cvtph_ps(half);
}
#endif
LINATTN__INLINE unsigned la_bits(la_mask m) { return m; }
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE __m512 Sleef_expf16_u10avx512f(__m512);
#define LA_SLEEF Sleef_expf16_u10avx512f
#endif

#if LINATTN__HAS_NYSTROM || LINATTN__HAS_SIGNED
#define LA_DW 8
#define la_dvec __m512d
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { _mm512_storeu_pd(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
#endif
LINATTN__INLINE la_dvec la_dset1(double x) { return _mm512_set1_pd(x); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return LA_OP(a, +, b, _mm512_add_pd); }
#if LINATTN__HAS_NYSTROM
LINATTN__INLINE la_dvec la_dload(const double *p) { return _mm512_loadu_pd(p); }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return LA_OP(a, -, b, _mm512_sub_pd); }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return LA_OP(a, *, b, _mm512_mul_pd); }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return LA_OP(a, /, b, _mm512_div_pd); }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c)
{
    return _mm512_fmadd_pd(a, b, c);
}
LINATTN__INLINE __mmask8 la_dgt(la_dvec a, la_dvec b)
{
#if defined(__clang__) && !LINATTN__MSVC /* as la_gt */
    const __m512i m = (__m512i)(a > b);
    return _mm512_test_epi64_mask(m, m);
#else
    return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ);
#endif
}
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b)
{
#if defined(__clang__) && !LINATTN__MSVC /* as la_max */
    return _mm512_max_round_pd(a, b, _MM_FROUND_NO_EXC);
#else
    return _mm512_max_pd(a, b);
#endif
}
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const __m512i shift = _mm512_slli_epi64(_mm512_castpd_si512(t), 52);
    return _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const int tiny = la_dgt(la_dset1(LINATTN__TINY), x) & la_dgt(x, la_dset1(-LINATTN__TINY));
    return _mm512_maskz_mov_pd((__mmask8)~tiny, x);
}
#endif

#elif LINATTN__ISA == LINATTN__ISA_AVX2

#define LA_W 8
#define la_vec __m256
#define la_mask __m256
#define LA_CAUSAL_TOKENS 3
#define LA_CAUSAL_FEW 1
#define LA_CAUSAL_VECS 2
#define LA_CAUSAL_TALL 4
#define LA_CAUSAL_WIDE 0
#define LA_GROUP_TOKENS 2
#define LA_QUERY_TOKENS 6
#define LA_QUERY_FEW 4
#define LA_QUERY_VECS 2
#define LA_QUERY_TALL 8
#define LA_UPDATE_ROWS 6
#define LA_UPDATE_VECS 2
#define LA_UPDATE_TALL 8
#define LA_EXACT_VECS 2
#define LA_SCORE_ROWS 3
#define LA_SCORE_CHAINS 2
#define LA_STAGE_VECS 2
#define LA_BLOCK 24
#define LA_PART 64
#define LA_STEP 128
#define LA_GENERAL_VECS 2
#define LA_GATED_TOKENS 3
#define LA_GATED_VECS 2

LINATTN__INLINE __m256i la_lanes(int n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index);
}
LINATTN__INLINE la_vec la_zero(void) { return _mm256_setzero_ps(); }
LINATTN__INLINE la_vec la_set1(float x) { return _mm256_set1_ps(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return _mm256_loadu_ps(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { _mm256_storeu_ps(p, a); }
LINATTN__INLINE la_vec la_load_part(const float *p, int n)
{
    return LA_SURELY(n == 8) ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, la_lanes(n));
}
LINATTN__INLINE void la_store_part(float *p, la_vec a, int n)
{
    if (n == 8) /* the masked store is microcode on AMD */
        _mm256_storeu_ps(p, a);
    else
        _mm256_maskstore_ps(p, la_lanes(n), a);
}
#define LA_STORE_FEW /* by pieces: for AMD a masked store is microcode, and long */
LINATTN__INLINE void la_store_few(float *p, la_vec a, int n)
{
    __m128 rest = _mm256_castps256_ps128(a);
    if (n == 8) {
        _mm256_storeu_ps(p, a);
        return;
    }
    if (n & 4) {
        _mm_storeu_ps(p, rest);
        rest = _mm256_extractf128_ps(a, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_epi64((__m128i *)(void *)p, _mm_castps_si128(rest));
        rest = _mm_movehl_ps(rest, rest);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, rest);
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(la_lanes(n)));
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return LA_OP(a, +, b, _mm256_add_ps); }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return LA_OP(a, -, b, _mm256_sub_ps); }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return LA_OP(a, *, b, _mm256_mul_ps); }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return LA_OP(a, /, b, _mm256_div_ps); }
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c) { return _mm256_fmadd_ps(a, b, c); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c) { return _mm256_fmsub_ps(a, b, c); }
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c) { return _mm256_fnmadd_ps(a, b, c); }
#if defined(__clang__) && defined(__FAST_MATH__) && !LINATTN__MSVC
/* clang then takes max and min to commute, whatever the pragma says. */
LINATTN__INLINE la_vec la_choose(la_vec m, la_vec a, la_vec b)
{
    return (__m256)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
}
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return la_choose((__m256)(a > b), a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return la_choose((__m256)(a < b), a, b); }
#else
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return _mm256_max_ps(a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return _mm256_min_ps(a, b); }
#endif
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b)
{
    return LA_COMPARE(la_mask, a, >, b, _mm256_cmp_ps, _CMP_GT_OQ);
}
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b)
{
    return LA_COMPARE(la_mask, a, ==, b, _mm256_cmp_ps, _CMP_EQ_OQ);
}
LINATTN__INLINE la_mask la_le(la_vec a, la_vec b)
{
    return LA_COMPARE(la_mask, a, <=, b, _mm256_cmp_ps, _CMP_LE_OQ);
}
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b)
{
    return _mm256_blendv_ps(b, a, m);
}
/* The sign is all that a selection looks at: a comparison less. */
#define LA_BY_SIGN
LINATTN__INLINE la_vec la_by_sign(la_vec x, la_vec a, la_vec b)
{
    return _mm256_blendv_ps(b, a, x);
}
LINATTN__INLINE int la_any(la_mask m) { return _mm256_movemask_ps(m) != 0; }
#define LA_BETWEEN
LINATTN__INLINE int la_between(la_vec x, float low, float high)
{
    const la_mask above = la_le(la_set1(low), x), below = la_le(x, la_set1(high));
    return _mm256_movemask_ps(_mm256_and_ps(above, below)) == 0xff;
}
LINATTN__INLINE la_vec la_clear(la_mask m, la_vec x) { return _mm256_andnot_ps(m, x); }
LINATTN__INLINE la_vec la_shift(la_vec p, la_vec n)
{
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const la_vec b = la_add(a[0], a[1]);
    const __m128 c = _mm256_castps256_ps128(b), d = _mm256_extractf128_ps(b, 1);
    const __m128 e = LA_OP(c, +, d, _mm_add_ps);
    const __m128 f = LA_OP(e, +, _mm_movehl_ps(e, e), _mm_add_ps);
    return _mm_cvtss_f32(LA_OP(f, +, _mm_shuffle_ps(f, f, 1), _mm_add_ps));
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    const la_vec b = la_max(a[0], a[1]);
    const la_vec c = la_max(b, _mm256_permute2f128_ps(b, b, 1));
    const la_vec d = la_max(c, _mm256_permute_ps(c, 0x4e));
    return _mm_cvtss_f32(_mm256_castps256_ps128(la_max(d, _mm256_permute_ps(d, 0xb1))));
}
LINATTN__INLINE la_vec la_fours(const float *row, size_t stride)
{
    const __m256 x = _mm256_castps128_ps256(_mm_loadu_ps(row));
    return _mm256_insertf128_ps(x, _mm_loadu_ps(row + stride), 1);
}
LINATTN__INLINE la_vec la_zip_low(la_vec a, la_vec b) { return _mm256_unpacklo_ps(a, b); }
LINATTN__INLINE la_vec la_zip_high(la_vec a, la_vec b) { return _mm256_unpackhi_ps(a, b); }
LINATTN__INLINE la_vec la_join_low(la_vec a, la_vec b)
{
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
LINATTN__INLINE la_vec la_join_high(la_vec a, la_vec b)
{
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
}
#define LA_SUMS16 /* as in AVX-512 */
LINATTN__INLINE la_vec la_sums16(const float *a, size_t count)
{
    la_vec b[8], x, y;
    size_t i, t;
    LINATTN__UNROLL for (t = 0; t < 8; t++)
    {
        b[t / 4 + t % 4 * 2] = la_add(la_load(a), la_load(a + 8)); /* 0 4, 1 5 and so on */
        a += (size_t)(t + 1 < count) * 16;
    }
    LINATTN__UNROLL for (i = 0; i < 4; i++)
    {
        x = _mm256_permute2f128_ps(b[2 * i], b[2 * i + 1], 0x20);
        y = _mm256_permute2f128_ps(b[2 * i], b[2 * i + 1], 0x31);
        b[i] = la_add(x, y);
    }
    LINATTN__UNROLL for (i = 0; i < 2; i++) b[i] =
        la_add(la_join_low(b[2 * i], b[2 * i + 1]), la_join_high(b[2 * i], b[2 * i + 1]));
    return la_add(_mm256_shuffle_ps(b[0], b[1], 0x88), _mm256_shuffle_ps(b[0], b[1], 0xdd));
}
#if LINATTN__HAS_HALF || LINATTN__HAS_EXACT
LINATTN__INLINE la_vec la_widened(__m128i half, int bf)
{
    if (!bf) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
LINATTN__INLINE la_vec la_wide(const void *p, int bf)
{
    return la_widened(_mm_loadu_si128((const __m128i *)p), bf);
}
#endif
#if LINATTN__HAS_HALF
LINATTN__INLINE la_vec la_power(la_vec x)
{
    const __m256i power = _mm256_set1_epi32(0x7f800000);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(x), power));
}
LINATTN__INLINE la_vec la_narrow(void *p, la_vec x, int bf)
{
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    __m128i half;
    if (bf)
        half = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    else
        half = _mm256_cvtps_ph(x, 0);
    _mm_storeu_si128((__m128i *)p, half);
    return bf ? x : _mm256_cvtph_ps(half);
}
#endif
LINATTN__INLINE unsigned la_bits(la_mask m) { return (unsigned)_mm256_movemask_ps(m); }
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE __m256 Sleef_expf8_u10avx2(__m256);
#define LA_SLEEF Sleef_expf8_u10avx2
#endif

#if LINATTN__HAS_NYSTROM || LINATTN__HAS_SIGNED
#define LA_DW 4
#define la_dvec __m256d
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { _mm256_storeu_pd(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
#endif
LINATTN__INLINE la_dvec la_dset1(double x) { return _mm256_set1_pd(x); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return LA_OP(a, +, b, _mm256_add_pd); }
#if LINATTN__HAS_NYSTROM
LINATTN__INLINE la_dvec la_dload(const double *p) { return _mm256_loadu_pd(p); }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return LA_OP(a, -, b, _mm256_sub_pd); }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return LA_OP(a, *, b, _mm256_mul_pd); }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return LA_OP(a, /, b, _mm256_div_pd); }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c)
{
    return _mm256_fmadd_pd(a, b, c);
}
LINATTN__INLINE __m256i la_dgt(la_dvec a, la_dvec b)
{
    return _mm256_castpd_si256(LA_COMPARE(la_dvec, a, >, b, _mm256_cmp_pd, _CMP_GT_OQ));
}
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b)
{
    return _mm256_castsi256_pd(
        _mm256_blendv_epi8(_mm256_castpd_si256(b), _mm256_castpd_si256(a), la_dgt(a, b)));
}
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const __m256i shift = _mm256_slli_epi64(_mm256_castpd_si256(t), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const __m256i below = la_dgt(la_dset1(LINATTN__TINY), x);
    const __m256i tiny = _mm256_and_si256(below, la_dgt(x, la_dset1(-LINATTN__TINY)));
    return _mm256_castsi256_pd(_mm256_andnot_si256(tiny, _mm256_castpd_si256(x)));
}
#endif

#elif LINATTN__ISA == LINATTN__ISA_NEON

#define LA_W 4
#define la_vec float32x4_t
#define la_mask uint32x4_t
#define LA_CAUSAL_TOKENS 6
#define LA_CAUSAL_FEW 2
#define LA_CAUSAL_VECS 2
#define LA_CAUSAL_TALL 6
#define LA_CAUSAL_WIDE 0
#define LA_GROUP_TOKENS 4
#define LA_QUERY_TOKENS 6
#define LA_QUERY_FEW 2
#define LA_QUERY_VECS 4
#define LA_QUERY_TALL 2
#define LA_UPDATE_ROWS 8
#define LA_UPDATE_VECS 2
#define LA_UPDATE_TALL 8
#define LA_EXACT_VECS 3
#define LA_SCORE_ROWS 4
#define LA_SCORE_CHAINS 1
#define LA_STAGE_VECS 4
#define LA_BLOCK 24
#define LA_PART 64
#define LA_STEP 128
#define LA_GENERAL_VECS 4

LINATTN__INLINE la_vec la_zero(void) { return vdupq_n_f32(0.0f); }
LINATTN__INLINE la_vec la_set1(float x) { return vdupq_n_f32(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return vld1q_f32(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { vst1q_f32(p, a); }
#define LA_LOAD_LANE(p, a, i) vld1q_lane_f32(p, a, i)
#define LA_STORE_LANE(p, a, i) vst1q_lane_f32(p, a, i)
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    static const uint32_t index[4] = {0, 1, 2, 3};
    return vbslq_f32(vcgtq_u32(vdupq_n_u32((uint32_t)n), vld1q_u32(index)), a, b);
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return LA_OP(a, +, b, vaddq_f32); }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return LA_OP(a, -, b, vsubq_f32); }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return LA_OP(a, *, b, vmulq_f32); }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return LA_OP(a, /, b, vdivq_f32); }
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c) { return vfmaq_f32(c, a, b); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c)
{
    return vfmaq_f32(vnegq_f32(c), a, b);
}
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c) { return vfmsq_f32(c, a, b); }
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b) { return vcgtq_f32(a, b); }
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b) { return vceqq_f32(a, b); }
LINATTN__INLINE la_mask la_le(la_vec a, la_vec b) { return vcleq_f32(a, b); }
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b) { return vbslq_f32(m, a, b); }
/* Not vmaxq: it orders -0 below 0 and returns NaN whichever operand it is. */
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return vbslq_f32(vcgtq_f32(b, a), a, b); }
LINATTN__INLINE int la_any(la_mask m) { return vmaxvq_u32(m) != 0; }
LINATTN__INLINE la_vec la_clear(la_mask m, la_vec x)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), m));
}
LINATTN__INLINE la_vec la_shift(la_vec p, la_vec n)
{
    const int32x4_t shift = vshlq_n_s32(vcvtq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), shift));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const la_vec b = la_add(la_add(a[0], a[2]), la_add(a[1], a[3]));
    const float32x2_t c = LA_OP(vget_low_f32(b), +, vget_high_f32(b), vadd_f32);
    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    return vmaxvq_f32(la_max(la_max(a[0], a[2]), la_max(a[1], a[3])));
}
LINATTN__INLINE la_vec la_zip_low(la_vec a, la_vec b) { return vzip1q_f32(a, b); }
LINATTN__INLINE la_vec la_zip_high(la_vec a, la_vec b) { return vzip2q_f32(a, b); }
LINATTN__INLINE la_vec la_join_low(la_vec a, la_vec b)
{
    return vcombine_f32(vget_low_f32(a), vget_low_f32(b));
}
LINATTN__INLINE la_vec la_join_high(la_vec a, la_vec b)
{
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}
#if LINATTN__HAS_UNIT
LINATTN__INLINE float la_sqrt(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
#endif
LINATTN__INLINE unsigned la_bits(la_mask m)
{
    static const uint32_t weight[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(weight)));
}
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE float32x4_t Sleef_expf4_u10advsimd(float32x4_t);
#define LA_SLEEF Sleef_expf4_u10advsimd
#endif

#if LINATTN__HAS_NYSTROM || LINATTN__HAS_SIGNED
#define LA_DW 2
#define la_dvec float64x2_t
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { vst1q_f64(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p) { return vcvt_f64_f32(vld1_f32(p)); }
#endif
LINATTN__INLINE la_dvec la_dset1(double x) { return vdupq_n_f64(x); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return LA_OP(a, +, b, vaddq_f64); }
#if LINATTN__HAS_NYSTROM
LINATTN__INLINE la_dvec la_dload(const double *p) { return vld1q_f64(p); }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return LA_OP(a, -, b, vsubq_f64); }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return LA_OP(a, *, b, vmulq_f64); }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return LA_OP(a, /, b, vdivq_f64); }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c) { return vfmaq_f64(c, a, b); }
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const int64x2_t shift = vshlq_n_s64(vreinterpretq_s64_f64(t), 52);
    return vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const uint64x2_t tiny = vcltq_f64(vabsq_f64(x), vdupq_n_f64(LINATTN__TINY));
    return vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(x), tiny));
}
#endif

#elif LINATTN__ISA == LINATTN__ISA_SSE2

#define LA_W 4
#define la_vec __m128
#define la_mask __m128
/* Small tiles: la_fma takes twenty instructions, beside which loads and stores weigh nothing. */
#define LA_CAUSAL_TOKENS 1
#define LA_CAUSAL_FEW 1
#define LA_CAUSAL_VECS 2
#define LA_CAUSAL_TALL 1
#define LA_CAUSAL_WIDE 0
#define LA_GROUP_TOKENS 1
#define LA_QUERY_TOKENS 1
#define LA_QUERY_FEW 1
#define LA_QUERY_VECS 2
#define LA_QUERY_TALL 1
#define LA_UPDATE_ROWS 2
#define LA_UPDATE_VECS 1
#define LA_UPDATE_TALL 2
#define LA_EXACT_VECS 1
#define LA_SCORE_ROWS 2
#define LA_SCORE_CHAINS 1
#define LA_STAGE_VECS 1
#define LA_BLOCK 24
#define LA_PART 64
#define LA_STEP 128
#define LA_GENERAL_VECS 4

LINATTN__INLINE la_vec la_zero(void) { return _mm_setzero_ps(); }
LINATTN__INLINE la_vec la_set1(float x) { return _mm_set1_ps(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return _mm_loadu_ps(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { _mm_storeu_ps(p, a); }
/* Into a lane that is 0. */
#define LA_LOAD_LANE(p, a, i)                                                                      \
    _mm_or_ps(a, _mm_castsi128_ps(_mm_slli_si128(_mm_castps_si128(_mm_load_ss(p)), 4 * (i))))
#define LA_STORE_LANE(p, a, i) _mm_store_ss(p, _mm_shuffle_ps(a, a, i))
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b)
{
    return _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b));
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    const __m128i lanes = _mm_cmpgt_epi32(_mm_set1_epi32(n), _mm_setr_epi32(0, 1, 2, 3));
    return la_select(_mm_castsi128_ps(lanes), a, b);
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return LA_OP(a, +, b, _mm_add_ps); }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return LA_OP(a, -, b, _mm_sub_ps); }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return LA_OP(a, *, b, _mm_mul_ps); }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return LA_OP(a, /, b, _mm_div_ps); }
/* The two sums p + d, rounded to odd: linattn__fma. */
static LINATTN__NOINLINE __m128d la_odd(__m128d p, __m128d d)
{
    const __m128d s = LA_OP(p, +, d, _mm_add_pd), t = LA_OP(s, -, p, _mm_sub_pd);
    const __m128d u = LA_OP(s, -, t, _mm_sub_pd), rest = LA_OP(p, -, u, _mm_sub_pd);
    const __m128d lost = LA_OP(d, -, t, _mm_sub_pd); /* the error is NaN where s is not finite */
    const __m128i error = _mm_castpd_si128(LA_OP(rest, +, lost, _mm_add_pd));
    const __m128i sum = _mm_castpd_si128(s), none = _mm_setzero_si128();
    /* All of the bits but the sign, as integers, which flags in force do not reach. */
    const __m128i high = _mm_srli_epi64(_mm_slli_epi64(error, 1), 33);
    const __m128i finite = _mm_cmpgt_epi32(_mm_set1_epi32(0x7ff00000), high);
    const __m128i some = _mm_or_si128(high, error);
    const __m128i low = _mm_slli_epi32(sum, 31);
    const __m128i odd = _mm_or_si128(low, _mm_cmpeq_epi32(some, none));
    const __m128i even = _mm_and_si128(_mm_cmpeq_epi32(odd, none), finite);
    const __m128i sign = _mm_srai_epi32(_mm_xor_si128(error, sum), 31);
    const __m128i step = _mm_or_si128(_mm_shuffle_epi32(sign, 0xf5), _mm_setr_epi32(1, 0, 1, 0));
    return _mm_castsi128_pd(_mm_add_epi64(sum, _mm_and_si128(step, _mm_shuffle_epi32(even, 0xa0))));
}
/* linattn__fma, two lanes at a time, of a in double. What may be rounded wrongly lies in the middle
   of two floats: a sum that ends with its 29th bit, or any below FLT_MIN; zeros, and sums that
   floats hold, are right, and common. */
LINATTN__INLINE la_vec la_fma_of(__m128d low, __m128d high, la_vec b, la_vec c)
{
    const __m128d b_low = _mm_cvtps_pd(b), b_high = _mm_cvtps_pd(_mm_movehl_ps(b, b));
    const __m128d p = LA_OP(low, *, b_low, _mm_mul_pd), q = LA_OP(high, *, b_high, _mm_mul_pd);
    const __m128d d = _mm_cvtps_pd(c), e = _mm_cvtps_pd(_mm_movehl_ps(c, c));
    const __m128d s = LA_OP(p, +, d, _mm_add_pd), t = LA_OP(q, +, e, _mm_add_pd);
    const __m128 ends = _mm_shuffle_ps(_mm_castpd_ps(s), _mm_castpd_ps(t), 0x88);
    const __m128 r = _mm_movelh_ps(_mm_cvtpd_ps(s), _mm_cvtpd_ps(t));
    const __m128i end = _mm_slli_epi32(_mm_castps_si128(ends), 3),
                  least = _mm_set1_epi32(INT32_MIN);
    const __m128i size = _mm_slli_epi32(_mm_castps_si128(r), 1); /* twice: 0, or 1 to 0xffffff */
    const __m128i tiny = _mm_cmpgt_epi32(_mm_set1_epi32(INT32_MIN + 0xffffff), //
                                         _mm_add_epi32(size, _mm_set1_epi32(INT32_MAX)));
    if (!_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi32(end, least), tiny))) return r;
    return _mm_movelh_ps(_mm_cvtpd_ps(la_odd(p, d)), _mm_cvtpd_ps(la_odd(q, e)));
}
static LINATTN__NOINLINE la_vec la_fma(la_vec a, la_vec b, la_vec c)
{
    return la_fma_of(_mm_cvtps_pd(a), _mm_cvtps_pd(_mm_movehl_ps(a, a)), b, c);
}
LINATTN__INLINE la_vec la_fma_hot(la_vec a, la_vec b, la_vec c)
{
    const __m128d both = _mm_cvtps_pd(a);
    return la_fma_of(both, both, b, c);
}
LINATTN__INLINE la_vec la_negative(la_vec a) { return _mm_xor_ps(a, _mm_set1_ps(-0.0f)); }
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c) { return la_fma(a, b, la_negative(c)); }
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c)
{
    return la_fma(la_negative(a), b, c);
}
#define LA_BY(a, b, comparison) _mm_cmp##comparison##_ps(a, b)
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b)
{
    return LA_COMPARE(la_mask, a, >, b, LA_BY, gt);
}
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b)
{
    return LA_COMPARE(la_mask, a, ==, b, LA_BY, eq);
}
LINATTN__INLINE la_mask la_le(la_vec a, la_vec b)
{
    return LA_COMPARE(la_mask, a, <=, b, LA_BY, le);
}
#undef LA_BY
#if defined(__clang__) && defined(__FAST_MATH__) && !LINATTN__MSVC /* as for AVX2 */
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return la_select((__m128)(a > b), a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return la_select((__m128)(a < b), a, b); }
#else
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return _mm_max_ps(a, b); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return _mm_min_ps(a, b); }
#endif
LINATTN__INLINE int la_any(la_mask m) { return _mm_movemask_ps(m) != 0; }
LINATTN__INLINE la_vec la_clear(la_mask m, la_vec x) { return _mm_andnot_ps(m, x); }
LINATTN__INLINE la_vec la_shift(la_vec p, la_vec n)
{
    const __m128i shift = _mm_slli_epi32(_mm_cvtps_epi32(n), 23);
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(p), shift));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const la_vec b = la_add(la_add(a[0], a[2]), la_add(a[1], a[3]));
    const la_vec c = la_add(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(la_add(c, _mm_shuffle_ps(c, c, 1)));
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    const la_vec b = la_max(la_max(a[0], a[2]), la_max(a[1], a[3]));
    const la_vec c = la_max(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(la_max(c, _mm_shuffle_ps(c, c, 1)));
}
LINATTN__INLINE la_vec la_zip_low(la_vec a, la_vec b) { return _mm_unpacklo_ps(a, b); }
LINATTN__INLINE la_vec la_zip_high(la_vec a, la_vec b) { return _mm_unpackhi_ps(a, b); }
LINATTN__INLINE la_vec la_join_low(la_vec a, la_vec b) { return _mm_movelh_ps(a, b); }
LINATTN__INLINE la_vec la_join_high(la_vec a, la_vec b) { return _mm_movehl_ps(b, a); }
LINATTN__INLINE unsigned la_bits(la_mask m) { return (unsigned)_mm_movemask_ps(m); }
#ifdef LINATTN_USE_SLEEF
LINATTN__C_LINKAGE __m128 Sleef_expf4_u10sse2(__m128);
#define LA_SLEEF Sleef_expf4_u10sse2
#endif

#if LINATTN__HAS_NYSTROM || LINATTN__HAS_SIGNED
#define LA_DW 2
#define la_dvec __m128d
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { _mm_storeu_pd(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p)
{
    return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)p)));
}
#endif
LINATTN__INLINE la_dvec la_dset1(double x) { return _mm_set1_pd(x); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return LA_OP(a, +, b, _mm_add_pd); }
#if LINATTN__HAS_NYSTROM
LINATTN__INLINE la_dvec la_dload(const double *p) { return _mm_loadu_pd(p); }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return LA_OP(a, -, b, _mm_sub_pd); }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return LA_OP(a, *, b, _mm_mul_pd); }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return LA_OP(a, /, b, _mm_div_pd); }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c)
{
    double x[2], y[2], z[2];
    int i;
    la_dstore(x, a);
    la_dstore(y, b);
    la_dstore(z, c);
    for (i = 0; i < 2; i++) x[i] = linattn__double_fma(x[i], y[i], z[i]);
    return la_dload(x);
}
#define LA_BY(a, b, comparison) _mm_cmp##comparison##_pd(a, b)
LINATTN__INLINE la_dvec la_dgt(la_dvec a, la_dvec b)
{
    return LA_COMPARE(la_dvec, a, >, b, LA_BY, gt);
}
#undef LA_BY
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b)
{
    const la_dvec m = la_dgt(a, b);
    return _mm_or_pd(_mm_and_pd(m, a), _mm_andnot_pd(m, b));
}
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    const __m128i shift = _mm_slli_epi64(_mm_castpd_si128(t), 52);
    return _mm_castsi128_pd(_mm_add_epi64(_mm_castpd_si128(p), shift));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    const la_dvec below = la_dgt(la_dset1(LINATTN__TINY), x);
    return _mm_andnot_pd(_mm_and_pd(below, la_dgt(x, la_dset1(-LINATTN__TINY))), x);
}
#endif

#elif LINATTN__ISA == LINATTN__ISA_SIMD128 || LINATTN__ISA == LINATTN__ISA_RELAXED

#define LA_W 4
#define la_vec v128_t
#define la_mask v128_t
#define LA_CAUSAL_TOKENS 3
#define LA_CAUSAL_FEW 1
#define LA_CAUSAL_VECS 2
#define LA_CAUSAL_TALL 3
#define LA_CAUSAL_WIDE 0
#define LA_GROUP_TOKENS 2
#define LA_QUERY_TOKENS 6
#define LA_QUERY_FEW 4
#define LA_QUERY_VECS 2
#define LA_QUERY_TALL 4
#define LA_UPDATE_ROWS 6
#define LA_UPDATE_VECS 2
#define LA_UPDATE_TALL 6
#define LA_EXACT_VECS 2
#define LA_SCORE_ROWS 3
#define LA_SCORE_CHAINS 2
#define LA_STAGE_VECS 4
#define LA_BLOCK 24
#define LA_PART 64
#define LA_STEP 128
#define LA_GENERAL_VECS 4

LINATTN__INLINE la_vec la_zero(void) { return wasm_f32x4_splat(0.0f); }
LINATTN__INLINE la_vec la_set1(float x) { return wasm_f32x4_splat(x); }
LINATTN__INLINE la_vec la_load(const float *p) { return wasm_v128_load(p); }
LINATTN__INLINE void la_store(float *p, la_vec a) { wasm_v128_store(p, a); }
#define LA_LOAD_LANE(p, a, i) wasm_v128_load32_lane(p, a, i)
#define LA_STORE_LANE(p, a, i) wasm_v128_store32_lane(p, a, i)
LINATTN__INLINE la_vec la_select(la_mask m, la_vec a, la_vec b)
{
    return wasm_v128_bitselect(a, b, m);
}
LINATTN__INLINE la_vec la_first(la_vec a, la_vec b, int n)
{
    return la_select(wasm_i32x4_gt(wasm_i32x4_splat(n), wasm_i32x4_const(0, 1, 2, 3)), a, b);
}
LINATTN__INLINE la_vec la_add(la_vec a, la_vec b) { return wasm_f32x4_add(a, b); }
LINATTN__INLINE la_vec la_sub(la_vec a, la_vec b) { return wasm_f32x4_sub(a, b); }
LINATTN__INLINE la_vec la_mul(la_vec a, la_vec b) { return wasm_f32x4_mul(a, b); }
LINATTN__INLINE la_vec la_div(la_vec a, la_vec b) { return wasm_f32x4_div(a, b); }
#if LINATTN__ISA == LINATTN__ISA_RELAXED
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c)
{
    return wasm_f32x4_relaxed_madd(a, b, c);
}
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c)
{
    return wasm_f32x4_relaxed_nmadd(a, b, c);
}
#else
/* The two sums p + d, rounded to odd: linattn__fma. */
static LINATTN__NOINLINE v128_t la_odd(v128_t p, v128_t d)
{
    const v128_t s = wasm_f64x2_add(p, d), t = wasm_f64x2_sub(s, p);
    const v128_t rest = wasm_f64x2_sub(p, wasm_f64x2_sub(s, t));
    const v128_t error = wasm_f64x2_add(rest, wasm_f64x2_sub(d, t)); /* NaN where s is not finite */
    const v128_t one = wasm_i64x2_splat(1), size = wasm_f64x2_abs(error);
    const v128_t even = wasm_i64x2_eq(wasm_v128_and(s, one), wasm_f64x2_splat(0.0));
    const v128_t moves = wasm_v128_and(even, wasm_f64x2_gt(size, wasm_f64x2_splat(0.0)));
    const v128_t step = wasm_v128_or(wasm_i64x2_shr(wasm_v128_xor(error, s), 63), one);
    return wasm_i64x2_add(s, wasm_v128_and(step, moves));
}
/* linattn__fma, two lanes at a time, as for SSE2. */
LINATTN__INLINE la_vec la_fma(la_vec a, la_vec b, la_vec c)
{
    const v128_t high_a = wasm_i64x2_shuffle(a, a, 1, 0), high_b = wasm_i64x2_shuffle(b, b, 1, 0);
    const v128_t p = wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), //
                                    wasm_f64x2_promote_low_f32x4(b));
    const v128_t q =
        wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(high_a), wasm_f64x2_promote_low_f32x4(high_b));
    const v128_t d = wasm_f64x2_promote_low_f32x4(c);
    const v128_t e = wasm_f64x2_promote_low_f32x4(wasm_i64x2_shuffle(c, c, 1, 0));
    v128_t s = wasm_f64x2_add(p, d), t = wasm_f64x2_add(q, e);
    const v128_t ends = wasm_i32x4_shl(wasm_i32x4_shuffle(s, t, 0, 2, 4, 6), 3);
    const v128_t r =
        wasm_i64x2_shuffle(wasm_f32x4_demote_f64x2_zero(s), wasm_f32x4_demote_f64x2_zero(t), 0, 2);
    const v128_t size = wasm_i32x4_add(wasm_i32x4_shl(r, 1), wasm_i32x4_splat(INT32_MAX));
    const v128_t tiny = wasm_i32x4_gt(wasm_i32x4_splat(INT32_MIN + 0xffffff), size);
    const v128_t half = wasm_i32x4_eq(ends, wasm_i32x4_splat(INT32_MIN));
    if (!wasm_v128_any_true(wasm_v128_or(half, tiny))) return r;
    s = la_odd(p, d);
    t = la_odd(q, e);
    return wasm_i64x2_shuffle(wasm_f32x4_demote_f64x2_zero(s), wasm_f32x4_demote_f64x2_zero(t), 0,
                              2);
}
LINATTN__INLINE la_vec la_fnma(la_vec a, la_vec b, la_vec c)
{
    return la_fma(wasm_f32x4_neg(a), b, c);
}
#endif
LINATTN__INLINE la_vec la_fms(la_vec a, la_vec b, la_vec c)
{
    return la_fma(a, b, wasm_f32x4_neg(c));
}
LINATTN__INLINE la_mask la_gt(la_vec a, la_vec b) { return wasm_f32x4_gt(a, b); }
LINATTN__INLINE la_mask la_eq(la_vec a, la_vec b) { return wasm_f32x4_eq(a, b); }
LINATTN__INLINE la_mask la_le(la_vec a, la_vec b) { return wasm_f32x4_le(a, b); }
LINATTN__INLINE la_vec la_max(la_vec a, la_vec b) { return wasm_f32x4_pmax(b, a); }
LINATTN__INLINE la_vec la_min(la_vec a, la_vec b) { return wasm_f32x4_pmin(b, a); }
LINATTN__INLINE int la_any(la_mask m) { return wasm_v128_any_true(m); }
LINATTN__INLINE la_vec la_clear(la_mask m, la_vec x) { return wasm_v128_andnot(x, m); }
LINATTN__INLINE la_vec la_shift(la_vec p, la_vec n)
{
    return wasm_i32x4_add(p, wasm_i32x4_shl(wasm_i32x4_trunc_sat_f32x4(n), 23));
}
LINATTN__INLINE float la_sum16(const la_vec *a)
{
    const la_vec b = la_add(la_add(a[0], a[2]), la_add(a[1], a[3]));
    const la_vec c = la_add(b, wasm_i32x4_shuffle(b, b, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(c, 0) + wasm_f32x4_extract_lane(c, 1);
}
LINATTN__INLINE float la_max16(const la_vec *a)
{
    const la_vec b = la_max(la_max(a[0], a[2]), la_max(a[1], a[3]));
    const la_vec c = la_max(b, wasm_i32x4_shuffle(b, b, 2, 3, 0, 1));
    return wasm_f32x4_extract_lane(la_max(c, wasm_i32x4_shuffle(c, c, 1, 0, 3, 2)), 0);
}
LINATTN__INLINE la_vec la_zip_low(la_vec a, la_vec b)
{
    return wasm_i32x4_shuffle(a, b, 0, 4, 1, 5);
}
LINATTN__INLINE la_vec la_zip_high(la_vec a, la_vec b)
{
    return wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
}
LINATTN__INLINE la_vec la_join_low(la_vec a, la_vec b)
{
    return wasm_i32x4_shuffle(a, b, 0, 1, 4, 5);
}
LINATTN__INLINE la_vec la_join_high(la_vec a, la_vec b)
{
    return wasm_i32x4_shuffle(a, b, 2, 3, 6, 7);
}
#if LINATTN__HAS_UNIT
LINATTN__INLINE float la_sqrt(float x)
{
    return wasm_f32x4_extract_lane(wasm_f32x4_sqrt(wasm_f32x4_splat(x)), 0);
}
#endif
LINATTN__INLINE unsigned la_bits(la_mask m) { return (unsigned)wasm_i32x4_bitmask(m); }
#if LINATTN__HAS_NYSTROM || LINATTN__HAS_SIGNED
#define LA_DW 2
#define la_dvec v128_t
LINATTN__INLINE void la_dstore(double *p, la_dvec a) { wasm_v128_store(p, a); }
LINATTN__INLINE la_dvec la_dwiden(const float *p)
{
    return wasm_f64x2_promote_low_f32x4(wasm_v128_load64_zero(p));
}
#endif
LINATTN__INLINE la_dvec la_dset1(double x) { return wasm_f64x2_splat(x); }
LINATTN__INLINE la_dvec la_dadd(la_dvec a, la_dvec b) { return wasm_f64x2_add(a, b); }
#if LINATTN__HAS_NYSTROM
LINATTN__INLINE la_dvec la_dload(const double *p) { return wasm_v128_load(p); }
LINATTN__INLINE la_dvec la_dsub(la_dvec a, la_dvec b) { return wasm_f64x2_sub(a, b); }
LINATTN__INLINE la_dvec la_dmul(la_dvec a, la_dvec b) { return wasm_f64x2_mul(a, b); }
LINATTN__INLINE la_dvec la_ddiv(la_dvec a, la_dvec b) { return wasm_f64x2_div(a, b); }
LINATTN__INLINE la_dvec la_dfma(la_dvec a, la_dvec b, la_dvec c)
{
#if LINATTN__ISA == LINATTN__ISA_RELAXED
    return wasm_f64x2_relaxed_madd(a, b, c);
#else
    const double low =
        linattn__double_fma(wasm_f64x2_extract_lane(a, 0), //
                            wasm_f64x2_extract_lane(b, 0), wasm_f64x2_extract_lane(c, 0));
    const double high =
        linattn__double_fma(wasm_f64x2_extract_lane(a, 1), //
                            wasm_f64x2_extract_lane(b, 1), wasm_f64x2_extract_lane(c, 1));
    return wasm_f64x2_make(low, high);
#endif
}
LINATTN__INLINE la_dvec la_dmax(la_dvec a, la_dvec b) { return wasm_f64x2_pmax(b, a); }
LINATTN__INLINE la_dvec la_dscale(la_dvec p, la_dvec t)
{
    return wasm_i64x2_add(p, wasm_i64x2_shl(t, 52));
}
LINATTN__INLINE la_dvec la_dflush(la_dvec x)
{
    return wasm_v128_andnot(x, wasm_f64x2_lt(wasm_f64x2_abs(x), la_dset1(LINATTN__TINY)));
}
#endif

#endif

/* The sets that have an exponent's bits, but no instruction for p * 2^n. */
#if LA_W == 4 || LA_W == 8
LINATTN__INLINE la_vec la_scale(la_vec p, la_vec n)
{
    return la_clear(la_le(n, la_set1(-126.0f)), la_shift(p, n));
}
LINATTN__INLINE la_vec la_scalable(la_vec x) { return x; }
LINATTN__INLINE la_vec la_capped(la_vec x) { return x; }
LINATTN__INLINE la_vec la_exp_end(la_vec p, la_vec n, la_vec x)
{
    const la_vec normal = la_clear(la_gt(la_set1(LINATTN__EXP_LOW), x), la_shift(p, n));
    /* inf, or NaN. By a product lanes that are not taken would overflow, and a flag that is new in
       MXCSR costs a call up to 80 ns on Intel's processors. */
    const la_vec beyond = la_add(x, la_set1(LINATTN__INF));
    return la_select(la_le(x, la_set1(LINATTN__EXP_HIGH)), normal, beyond);
}
LINATTN__INLINE la_vec la_ldexp(la_vec p, la_vec n)
{
    const la_vec m = la_max(la_set1(-127.0f), n), low = la_min(la_set1(127.0f), m);
    const la_vec power = la_shift(la_set1(1.0f), low);
    const la_vec r = la_mul(la_fma(p, la_sub(m, low), p), power);
    return la_clear(la_gt(la_set1(LINATTN__FLT_MIN), r), r);
}
#endif

/* The sets of vectors. */
#if LA_W == 4
LINATTN__INLINE la_vec la_fours(const float *row, size_t stride)
{
    (void)stride;
    return la_load(row);
}
#endif
#if LA_W > 1
LINATTN__INLINE void la_four_by_four(const la_vec *b, la_vec *a)
{
    la_vec c[4];
    int j;
    LINATTN__UNROLL for (j = 0; j < 4; j += 2)
    {
        c[j] = la_zip_low(b[j], b[j + 1]);
        c[j + 1] = la_zip_high(b[j], b[j + 1]);
    }
    LINATTN__UNROLL for (j = 0; j < 2; j++)
    {
        a[2 * j] = la_join_low(c[j], c[j + 2]);
        a[2 * j + 1] = la_join_high(c[j], c[j + 2]);
    }
}
LINATTN__INLINE void la_four_columns(const float *from, size_t stride, la_vec *a)
{
    la_vec b[4];
    int j;
    LINATTN__UNROLL for (j = 0; j < 4; j++) b[j] = la_fours(from + (size_t)j * stride, 4 * stride);
    la_four_by_four(b, a);
}
static LINATTN__NOINLINE void la_transpose(const float *from, size_t stride, la_vec *a)
{
    int i;
    for (i = 0; i < LA_W; i += 4) la_four_columns(from + i, stride, a + i);
}
#endif

/* The sets of four lanes, which they load and store one by one. */
#if LA_W == 4
LINATTN__INLINE la_vec la_load_part(const float *p, int n)
{
    la_vec a = la_zero();
    if (n == 4) return la_load(p);
    if (n > 0) a = LA_LOAD_LANE(p, a, 0);
    if (n > 1) a = LA_LOAD_LANE(p + 1, a, 1);
    if (n > 2) a = LA_LOAD_LANE(p + 2, a, 2);
    return a;
}
LINATTN__INLINE void la_store_part(float *p, la_vec a, int n)
{
    if (n == 4) {
        la_store(p, a);
        return;
    }
    if (n > 0) LA_STORE_LANE(p, a, 0);
    if (n > 1) LA_STORE_LANE(p + 1, a, 1);
    if (n > 2) LA_STORE_LANE(p + 2, a, 2);
}
#if LINATTN__HAS_HALF || LINATTN__HAS_EXACT
LINATTN__INLINE la_vec la_wide(const void *p, int bf)
{
#if LINATTN__ISA == LINATTN__ISA_NEON && !LINATTN__MSVC
    uint16x4_t half;
    linattn__copy(&half, p, sizeof half);
    if (!bf) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
#else /* no words for halves, or none that all versions of MSVC know */
    uint16_t half[4];
    float x[4];
    int i;
    linattn__copy(half, p, sizeof half);
    for (i = 0; i < 4; i++)
        x[i] = bf ? linattn__from_bits((uint32_t)half[i] << 16) : linattn__from_half(half[i]);
    return la_load(x);
#endif
}
#endif
#if LINATTN__HAS_HALF
LINATTN__INLINE la_vec la_power(la_vec x)
{
#if LINATTN__ISA == LINATTN__ISA_NEON
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x7f800000)));
#elif LINATTN__ISA == LINATTN__ISA_SSE2
    return _mm_and_ps(x, _mm_set1_ps(LINATTN__INF));
#else
    return wasm_v128_and(x, wasm_i32x4_splat(0x7f800000));
#endif
}
LINATTN__INLINE la_vec la_narrow(void *p, la_vec x, int bf)
{
#if LINATTN__ISA == LINATTN__ISA_NEON && !LINATTN__MSVC
    const uint16x4_t half =
        bf ? vshrn_n_u32(vreinterpretq_u32_f32(x), 16) : vreinterpret_u16_f16(vcvt_f16_f32(x));
#else
    uint16_t half[4];
    float lanes[4];
    int i;
    la_store(lanes, x);
    for (i = 0; i < 4; i++) {
        const uint32_t bits = linattn__to_bits(lanes[i]);
        half[i] = (uint16_t)(bf ? bits >> 16 : linattn__to_f16(bits));
    }
#endif
    linattn__copy(p, &half, sizeof half);
    return bf ? x : la_wide(&half, 0);
}
#endif
#endif

#if LINATTN__ISA != LINATTN__ISA_SSE2
#define la_fma_hot la_fma
#endif

/* ==== (B) The kernels ========================================================================= */

#define LA_PANEL_VECS (16 / LA_W)                     /* vectors in a row of a panel */
#define LA_SINGLE_VECS (LA_W > 1 ? 4 : LA_QUERY_VECS) /* that few tokens read at a time */
#define LA_LONE_VECS 8                                /* and just one */
#define LA_QUERIES (2 * LA_BLOCK - 1)                 /* query heads times tokens of a block */
#define LA_MOST (LA_BLOCK > 1 ? 16 : 1)               /* lanes of those who share scratch */

/* Scratch, in floats: a row is no power of two, or L1 sets clash; but scalar code has one row, and
   is to use little stack. */
#if LA_BLOCK > 1
#define LA_ROW (LINATTN__FEATURES + 16)
#define LA_SCORES 0
#define LA_PART_ROW (LA_PART + 16)
#define LA_PART_TOKENS LA_PART
#else
#define LA_ROW LINATTN__FEATURES
#define LA_SCORES (16 * LINATTN__HAS_WINDOW) /* that a token in a window has beyond a row */
#define LA_PART_ROW LA_PART
#define LA_PART_TOKENS 8
#endif

/* A row's vectors that are side by side are unrolled, but for scalar code. */
#if LA_W > 1
#define LA_EACH_VEC LINATTN__UNROLL
#else
#define LA_EACH_VEC
#endif

/* Is a copy of a kernel for each map worth its code? Not in scalar code, which is there to be
   small, nor where the compiler would not tell the copies apart. */
#if LA_W > 1 && (defined(__OPTIMIZE__) || (LINATTN__MSVC && !defined(_DEBUG)))
#define LA_CONSTANTS 1
#else
#define LA_CONSTANTS 0
#endif

/* ---- exp, and the maps on vectors ------------------------------------------------------------ */

/* e^r for |r| <= ln(2)/2: a degree 6 minimax polynomial, relative error 2^-28. */
LINATTN__INLINE la_vec la_exp_core(la_vec r)
{
#ifdef LINATTN_USE_SLEEF
    return LA_SLEEF(r);
#else
    la_vec p = la_set1(0.00138212892f);
    p = la_fma(p, r, la_set1(0.00836866908f));
    p = la_fma(p, r, la_set1(0.0416682586f));
    p = la_fma(p, r, la_set1(0.166665211f));
    p = la_fma(p, r, la_set1(0.49999994f));
    p = la_fma(p, r, la_set1(1.0f));
    return la_fma(p, r, la_set1(1.0f));
#endif
}

/* x = n ln(2) + r with an integer n and |r| <= ln(2)/2, for |x| < 2^21: adding 1.5 * 2^23 rounds to
   an integer, and ln(2) in two parts with fma keeps r exact to its last bit. */
LINATTN__INLINE la_vec la_reduce(la_vec x, la_vec *n)
{
    const la_vec magic = la_set1(12582912.0f);
    la_vec r;
    *n = la_sub(la_fma(x, la_set1(1.44269502f), magic), magic);
    r = la_fnma(*n, la_set1(0.693147182f), x);
    return la_fnma(*n, la_set1(-1.90465421e-09f), r);
}

/* e^x for x <= 0; zero where the result would be below 2^-125. Meaningless for x > 0, but
   harmless. */
LINATTN__HOT la_vec la_exp_negative(la_vec x)
{
    la_vec n;
    const la_vec r = la_reduce(la_scalable(x), &n);
    return la_scale(la_exp_core(r), n);
}

/* e^x over all floats. */
LINATTN__INLINE la_vec la_exp_full(la_vec x)
{
#ifdef LINATTN_USE_SLEEF
    const la_vec y = LA_SLEEF(x);
    return la_select(la_gt(la_set1(LINATTN__FLT_MIN), y), la_zero(), y);
#else
    la_vec n;
    const la_vec r = la_reduce(la_capped(x), &n);
    return la_exp_end(la_exp_core(r), n, x);
#endif
}

/* e^(x sqrt(s)) = p 2^n, p in [.7, 1.42): n saturates at +-2^21, and is -inf for x = -inf. The
   product x sqrt(s) is carried in two floats, so that large x lose nothing. */
LINATTN__INLINE la_vec la_split(la_vec x, const linattn__params *p, la_vec *n)
{
    const la_vec magic = la_set1(12582912.0f), root = la_set1(p->root);
    const la_vec c = la_min(la_set1(p->limit), la_max(la_set1(-p->limit), x));
    const la_vec k = la_sub(la_fma(c, la_set1(p->rate), magic), magic);
    const la_vec y = la_mul(c, root);
    const la_vec low = la_fma(c, la_set1(p->root_low), la_fms(c, root, y));
    la_vec r = la_fnma(k, la_set1(0.693147182f), y);
    r = la_add(la_fnma(k, la_set1(-1.90465421e-09f), r), low);
    *n = la_select(la_gt(la_set1(-LINATTN__FLT_MAX), x), la_set1(-LINATTN__INF), k);
    return la_exp_core(r);
}

/* The n of split alone. */
LINATTN__INLINE la_vec la_exponent(la_vec x, const linattn__params *p)
{
    const la_vec magic = la_set1(12582912.0f);
    const la_vec c = la_min(la_set1(p->limit), la_max(la_set1(-p->limit), x));
    const la_vec k = la_sub(la_fma(c, la_set1(p->rate), magic), magic);
    return la_select(la_gt(la_set1(-LINATTN__FLT_MAX), x), la_set1(-LINATTN__INF), k);
}

#ifndef LA_BY_SIGN
/* A denormal bound would raise a flag, which costs a write of the environment in each call. */
LINATTN__INLINE la_vec la_by_sign(la_vec x, la_vec a, la_vec b)
{
    return la_select(la_gt(x, la_set1(-LINATTN__FLT_MIN)), b, a);
}
#endif

/* The maps without exponent bookkeeping, on y = x sqrt(s). Below its floor relu is 0; the others
   have none. */
LINATTN__INLINE la_vec la_plain(la_vec y, const linattn__params *p, const int map)
{
    if (LINATTN__IS_ELU1(map)) {
        la_vec e;
        if (LA_W == 1 && !la_any(la_gt(la_zero(), y))) return la_add(y, la_set1(1.0f));
        e = la_exp_negative(y);
        if (LA_W == 1) return e;
        /* A sum under a mask is one operation for AVX-512. Just below 0 both are 1. */
        return la_by_sign(y, e, la_add(y, la_set1(1.0f)));
    }
    return la_max(la_set1(p->floor), y);
}

/* What n of a key is taken relative to: its contribution is stored as p 2^(n - E - BIAS). */
LINATTN__INLINE la_vec la_key_exponent(la_vec e)
{
    return la_add(la_max(la_set1(LINATTN__LOWEST), e), la_set1(LINATTN__BIAS));
}

/* la_load_part where nearly all vectors are whole. */
LINATTN__INLINE la_vec la_load_most(const float *p, int lanes)
{
    return LA_W == 8 && lanes == LA_W ? la_load(p) : la_load_part(p, lanes);
}

/* phi(k) as it enters S and z, 0 in lanes beyond the features. */
LINATTN__INLINE la_vec la_phi_key(const linattn__params *p, const float *key, int lanes,
                                  la_vec e_keys, const int map)
{
    const la_vec x = la_load_most(key, lanes);
    la_vec n, phi;
    if (LINATTN__IS_EXP(map)) {
        phi = la_split(x, p, &n);
        phi = la_scale(phi, la_sub(n, e_keys));
    } else {
        phi = la_plain(la_mul(x, la_set1(p->root)), p, map);
    }
    return lanes < LA_W ? la_first(phi, la_zero(), lanes) : phi;
}

/* phi(q), for exp times 2^(E - top). */
LINATTN__INLINE la_vec la_phi_query(const linattn__params *p, const float *query, int lanes,
                                    la_vec e, float top, const int map)
{
    const la_vec x = la_load_most(query, lanes);
    la_vec n, phi;
    if (LINATTN__IS_EXP(map)) {
        phi = la_split(x, p, &n);
        phi = la_scale(phi, la_sub(la_add(n, e), la_set1(top)));
    } else {
        phi = la_plain(la_mul(x, la_set1(p->root)), p, map);
    }
    return lanes < LA_W ? la_first(phi, la_zero(), lanes) : phi;
}

LINATTN__INLINE la_mask la_unordered(la_vec x)
{
    const la_vec one = la_set1(1.0f);
    return la_gt(one, la_select(la_eq(x, x), one, la_zero()));
}

/* x, saturating at +-FLT_MAX; a NaN stays. */
LINATTN__INLINE la_vec la_clamp(la_vec x)
{
    const la_vec big = la_set1(LINATTN__FLT_MAX);
    return la_max(la_sub(la_zero(), big), la_min(big, x));
}

/* x, 0 where it is below `least` in size; a NaN stays. */
LINATTN__INLINE la_vec la_flush(la_vec x, la_vec least)
{
    return la_select(la_gt(least, la_max(la_sub(la_zero(), x), x)), la_zero(), x);
}

#ifndef LA_BETWEEN
LINATTN__INLINE int la_between(la_vec x, float low, float high)
{
    return !la_any(la_gt(la_set1(low), x)) && !la_any(la_gt(x, la_set1(high))) &&
           !la_any(la_unordered(x));
}
#endif
#ifndef LA_NORMAL
LINATTN__INLINE la_vec la_normal(la_vec x) { return la_flush(x, la_set1(LINATTN__FLT_MIN)); }
#endif
#ifndef LA_RECIPROCAL
LINATTN__INLINE la_vec la_reciprocal(la_vec x) { return la_div(la_set1(1.0f), x); }
#endif

/* sum + term, and what rounding lost added to *lost (Knuth's TwoSum). */
LINATTN__INLINE la_vec la_two_sum(la_vec sum, la_vec term, la_vec *lost)
{
    const la_vec total = la_add(sum, term), part = la_sub(total, sum);
    const la_vec error = la_add(la_sub(sum, la_sub(total, part)), la_sub(term, part));
    *lost = la_add(*lost, error);
    return total;
}

/* z += phi. The identity's terms have signs: denominators may cancel to almost nothing, so its z
   keeps what rounding loses, in the place of the exponents. */
LINATTN__INLINE la_vec la_add_key(la_vec z, la_vec phi, la_vec *low, const int map)
{
    return LINATTN__IS_SIGNED(map) ? la_two_sum(z, phi, low) : la_add(z, phi);
}

/* The vectors that make 16 lanes, the next one to the front. */
LINATTN__INLINE void la_turn(la_vec *a)
{
    const la_vec first = a[0];
    size_t j;
    if (LA_W == 1) return;
    LA_EACH_VEC for (j = 0; j + 1 < LA_PANEL_VECS; j++) a[j] = a[j + 1];
    a[LA_PANEL_VECS - 1] = first;
}

/* Is a vector that ends there at most half filled? AVX2 then takes it: the same bits, for half the
   time where 512 bits take two turns, and elsewhere no more, but that tiles which read copy. */
LINATTN__INLINE size_t la_half_filled(size_t end)
{
    return LA_W == 16 && LINATTN__BOTH && end % 16 - 1 < 8;
}

LINATTN__INLINE int la_lanes_left(size_t end, size_t at)
{
    return end - at < LA_W ? (int)(end - at) : LA_W;
}

#if LINATTN__HAS_UNIT
/* by / sqrt(|by x|^2 + epsilon). */
LINATTN__INLINE float la_unit_of(const float *x, size_t d, float by, float epsilon)
{
    const la_vec least = la_set1(8.6736174e-19f); /* 2^-60: its square would be denormal */
    la_vec sum[LA_PANEL_VECS];
    size_t f;
    LA_EACH_VEC for (f = 0; f < LA_PANEL_VECS; f++) sum[f] = la_zero();
    for (f = 0; f < d; f += LA_W) {
        const size_t slot = LA_W > 1 ? 0 : f % 16;
        const la_vec part = la_load_most(x + f, la_lanes_left(d, f));
        const la_vec y = la_flush(la_mul(part, la_set1(by)), least);
        sum[slot] = la_fma(y, y, sum[slot]);
        la_turn(sum);
    }
    for (; LA_W > 1 && f % 16 != 0; f += LA_W) la_turn(sum);
    return by / la_sqrt(la_sum16(sum) + epsilon);
}

/* What the unit map multiplies x by. */
static LINATTN__NOINLINE void la_unit_root(const float *x, size_t d, float *root)
{
    *root = la_unit_of(x, d, 1.0f, 1e-6f);
    if (!(*root > 8.6736174e-19f)) *root = la_unit_of(x, d, 8.2718061e-25f, 0.0f); /* 2^-80 */
}

/* Features [f0, f1) of the unit map of `count` tokens. */
static LINATTN__NOINLINE void la_unit(const linattn__span *s, const float *x, size_t x_token,
                                      size_t count, size_t f0, size_t f1, float *y, size_t y_row)
{
    size_t t, f;
    for (t = 0; t < count; t++, x += x_token, y += y_row) {
        float root;
        la_unit_root(x, s->d, &root);
        for (f = f0; f < f1; f += LA_W)
            la_store(y + (f - f0),
                     la_mul(la_load_part(x + f, la_lanes_left(f1, f)), la_set1(root)));
    }
}
#endif

#if LINATTN__HAS_HALF || LINATTN__HAS_EXACT
LINATTN__INLINE void la_widen_row(const uint16_t *at, size_t n, float *to, const int bf)
{
    uint16_t part[LA_W];
    size_t i = 0;
    for (; n - i >= LA_W; i += LA_W) la_store(to + i, la_wide(at + i, bf));
    if (i == n) return;
    linattn__copy(part, at + i, (n - i) * sizeof *part);
    la_store_part(to + i, la_wide(part, bf), (int)(n - i));
}

/* `rows` rows of n numbers of 16 bits, `row` of them apart, as dense floats. */
LINATTN__SMALL static LINATTN__NOINLINE void la_widen(const float *from, int element, size_t row,
                                                      size_t rows, size_t n, float *to)
{
    const uint16_t *at = (const uint16_t *)(const void *)from;
    if (element == LINATTN_BF16) {
        for (; rows > 0; rows--, at += row, to += n) la_widen_row(at, n, to, 1);
    } else {
        for (; rows > 0; rows--, at += row, to += n) la_widen_row(at, n, to, 0);
    }
}
#endif

/* ---- Sums: the maps, z and the denominators -------------------------------------------------- */

#if LA_WALK
/* What a block of tokens needs between its stages, on the stack. Query heads that share a key/value
   head share a block: query head g of `count` tokens owns rows g * count and up of q to power. */
typedef struct la_scratch {
    /* phi(k), token by token; then, where q points, phi(q) */
    float k[2 * LA_BLOCK * LA_ROW + LA_SCORES];
    float den[LA_QUERIES * 16];            /* denominators over 16 virtual lanes */
    float lost[LA_QUERIES * 16];           /* and what their rounding lost, for the identity */
    float top[LA_QUERIES];                 /* exponent that phi(q) is relative to */
    float scale[LA_QUERIES - 1 + LA_MOST]; /* output factor: scale * 2^power */
    float power[LA_QUERIES];
    float *q; /* phi(q), or the weights that stand for it */
} la_scratch;

/* Where the inputs of the map lie for a chunk of features: that of token t and the chunk's feature
   i is at[t * row + i]. They are the operands themselves, or were made into scratch. */
typedef struct la_rows {
    const float *at;
    size_t row;
} la_rows;

/* Features [f0, f1) of a block of `count` tokens from t0, and of one run of these: tokens [t, end)
   of the block, during which no exponent of a key moves but at its begin. */
typedef struct la_chunk {
    size_t t0, count, f0, f1, t, end;
    int first, last;            /* of the features */
    int keep;                   /* leave the new z behind */
    int fresh;                  /* keys are not mapped yet */
    int own;                    /* tokens count as seen by their own queries */
    la_rows k, q;               /* of the block's tokens, for one query head */
    size_t row0;                /* of that head in scratch */
    const float *query;         /* its operand */
    ptrdiff_t k_ahead, q_ahead; /* floats to what the next block maps and this one fetches, or 0 */
    ptrdiff_t v_ahead;          /* likewise of update's values, for the first of its features */
    float *out, *scores;        /* rows of the run's read-out that a higher peak shrinks, */
    size_t columns;             /* and how many scores */
} la_chunk;
#endif

/* linattn__rescale for a vector. */
LINATTN__INLINE la_vec la_rescale(la_vec x, const float *factor)
{
    const la_vec y = la_mul(la_mul(x, la_set1(factor[0])), la_set1(factor[1]));
    return la_normal(y);
}

#if LA_COLD
/* out *= 2^delta and so the denominator: the features seen so far weigh less than the next ones. */
static LINATTN__NOINLINE void la_shrink(const linattn__span *s, float *den, float *out, float delta)
{
    float factor[2];
    size_t c;
    linattn__two_factors(delta, factor);
    for (c = 0; c < 16; c++) den[c] = linattn__rescale(den[c], factor);
    if (!out) return;
    for (c = s->column_begin; c < s->column_end && c < s->dv; c += LA_W) {
        const int lanes = la_lanes_left(s->dv, c);
        la_store_part(out + c, la_rescale(la_load_part(out + c, lanes), factor), lanes);
    }
}
#endif

/* peak[t] = the largest exponent of phi(q) over the features [f0, f1) of each of `count` rows, with
   the state's exponents where these weigh in (norm feature divides by z instead). A row begins
   with feature f0. */
static LINATTN__NOINLINE void la_peak(const linattn__span *s, const float *row, size_t step,
                                      size_t count, size_t f0, size_t f1, float *peak)
{
    const linattn__params local = *s->params, *p = &local; /* which no store can change */
    const int with_state = p->norm != LINATTN_NORM_FEATURE;
    la_vec top[LA_PANEL_VECS];
    size_t t, f;
    LA_EACH_VEC for (f = 1; f < LA_PANEL_VECS; f++) top[f] = la_set1(-LINATTN__INF);
    for (t = 0; t < count; t++, row += step) {
        *top = la_set1(-LINATTN__INF);
        for (f = f0; f < f1; f += LA_W) {
            const int lanes = la_lanes_left(f1, f);
            la_vec n = la_exponent(la_load_most(row + (f - f0), lanes), p);
            if (with_state) n = la_add(n, la_load(s->e + f));
            if (lanes < LA_W) n = la_first(n, la_set1(-LINATTN__INF), lanes);
            *top = la_max(n, *top); /* in this order no NaN gets in */
        }
        peak[t] = la_max16(top);
    }
}

/* *top follows the peaks of the features so far, -inf where there is nothing to weigh. Where it
   rises, what was read out so far shrinks. */
LINATTN__INLINE void la_raise(const linattn__span *s, float *top, const float *peak, int first,
                              float *den, float *out)
{
    if (first) {
        *top = -LINATTN__INF;
        if (*peak > -LINATTN__INF) *top = *peak;
    } else if (*peak > *top) {
        if (*top > -LINATTN__INF) LA_OF(s, shrink)(s, den, out, *top - *peak);
        *top = *peak;
    }
}

#if LA_WALK
static LINATTN__NOINLINE void la_peaks(const linattn__span *s, la_scratch *w, const la_chunk *c)
{
    float peaks[LA_BLOCK];
    size_t t, i;
    LA_OF(s, peak)(s, c->q.at + c->t * c->q.row, c->q.row, c->end - c->t, c->f0, c->f1, peaks);
    for (t = c->t; c->first && t < c->end; t++)
        la_raise(s, w->top + c->row0 + t, peaks + (t - c->t), 1, NULL, NULL);
    for (; t < c->end; t++) {
        const size_t row = c->row0 + t;
        const float *const peak = peaks + (t - c->t);
        float *const scores = c->scores ? c->scores + t * LA_ROW : NULL;
        const float before = w->top[row];
        la_raise(s, w->top + row, peak, 0, w->den + row * 16,
                 c->out ? c->out + t * s->out_token : NULL);
        if (scores && *peak > before && before > -LINATTN__INF) {
            float factor[2];
            linattn__two_factors(before - *peak, factor);
            for (i = 0; i < c->columns; i++) scores[i] = linattn__rescale(scores[i], factor);
        }
    }
}
#endif

#if LINATTN__HAS_SOFTMAX && LA_COLD
/* The mass sum_f e^q_f = mass 2^top of one query: what the softmax map divides phi(q) by. */
static void la_mass(const linattn__span *s, const float *row, float *mass, float *top)
{
    la_vec sum[LA_PANEL_VECS], peak[LA_PANEL_VECS];
    size_t f, i;
    for (i = 0; i < LA_PANEL_VECS; i++) {
        sum[i] = la_zero();
        peak[i] = la_set1(-LINATTN__INF);
    }
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = la_lanes_left(s->m, f);
        const la_vec n = la_exponent(la_load_part(row + f, lanes), s->params);
        i = (f / LA_W) % LA_PANEL_VECS;
        peak[i] = la_max(peak[i], la_first(n, la_set1(-LINATTN__INF), lanes));
    }
    *top = la_max16(peak);
    if (!(*top > -LINATTN__INF)) *top = 0.0f;
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = la_lanes_left(s->m, f);
        la_vec n, e = la_split(la_load_part(row + f, lanes), s->params, &n);
        e = la_scale(e, la_sub(n, la_set1(*top)));
        i = (f / LA_W) % LA_PANEL_VECS;
        sum[i] = la_add(sum[i], la_first(e, la_zero(), lanes));
    }
    *mass = la_sum16(sum);
}
#endif

/* The denominator's term of one vector of features, and the weight that S's rows get. feature: the
   norm, 2 where low is what z of the past holds. */
LINATTN__INLINE la_vec la_weigh_query(la_vec phi, la_vec z, la_vec low, la_vec *den, la_vec *lost,
                                      const int map, const int feature)
{
    if (feature) {
        const la_vec by = LINATTN__IS_SIGNED(map) || feature > 1 ? la_add(z, low) : z;
        *den = la_add(*den, phi);
        return la_select(la_eq(by, la_zero()), la_zero(), la_clamp(la_div(phi, by)));
    }
    if (LINATTN__IS_SIGNED(map)) {
        const la_vec term = la_mul(phi, z);
        *lost = la_add(*lost, la_fms(phi, z, term));
        *den = la_two_sum(*den, term, lost);
        *lost = la_fma(phi, low, *lost);
    } else {
        *den = la_fma(phi, z, *den);
    }
    return phi;
}

/* phi(k) of vector j of a run's tokens: mapped, or where another query head has done so taken from
   scratch. */
LINATTN__INLINE la_vec la_stage_key(const linattn__params *p, const float *k, float *at, int fresh,
                                    int lanes, la_vec e, const int map)
{
    la_vec phi;
    if (!fresh) return la_load(at);
    phi = la_phi_key(p, k, lanes, la_key_exponent(e), map);
    la_store(at, phi);
    return phi;
}

#if LINATTN__HAS_COMPENSATED
/* The factors that take feature f from the exponent of its past to that of its sums. */
LINATTN__INLINE void la_past_factors(const linattn__span *s, size_t f, float *factor)
{
    const float e = s->s[s->past + f - linattn__round16(s->m)];
    factor[0] = factor[1] = 1.0f; /* of nothing yet */
    if (e >= LINATTN__LOWEST) linattn__two_factors(e - s->e[f], factor);
}

/* Is z in two parts, for the norm that divides by it? The signed maps have it in one. */
LINATTN__INLINE int la_past_divides(const linattn__span *s)
{
    return s->past && s->params->norm == LINATTN_NORM_FEATURE &&
           !LINATTN__IS_SIGNED(s->params->map);
}

#if LA_WALK
/* z of the past for `count` features from f, relative to the exponents of the sums. */
LINATTN__COLD static LINATTN__NOINLINE void la_past_z(const linattn__span *s, size_t f,
                                                      size_t count, float *z)
{
    const float *const from = s->s + s->past - 2 * linattn__round16(s->m) + f;
    size_t i;
    for (i = 0; i < count; i++) {
        float factor[2];
        z[i] = from[i];
        if (!LINATTN__IS_EXP(s->params->map) || f + i >= s->m) continue;
        la_past_factors(s, f + i, factor);
        z[i] = linattn__rescale(from[i], factor);
    }
}
#endif

#if LA_COLD
/* The weights of `count` queries for features [f0, f1), now for the rows of the past; and what
   its z adds to their denominators. */
LINATTN__COLD static LINATTN__NOINLINE void
la_past_weights(const linattn__span *s, float *q, float *den, size_t count, size_t f0, size_t f1)
{
    const int map = s->params->map;
    const int feature = s->params->norm == LINATTN_NORM_FEATURE;
    const float *const z = s->s + s->past - 2 * linattn__round16(s->m);
    size_t t, f, i;
    for (f = f0; f < f1; f += LA_W, q += LA_W) {
        float by[2][LA_W], factor[2];
        for (i = 0; i < LA_W && LINATTN__IS_EXP(map); i++) {
            factor[0] = factor[1] = 1.0f;
            if (f + i < f1) la_past_factors(s, f + i, factor);
            by[0][i] = factor[0];
            by[1][i] = factor[1];
        }
        for (t = 0; t < count; t++) {
            float *const at = q + t * LA_ROW, *const sum = den + t * 16 + f % 16;
            la_vec y = la_load(at);
            if (LINATTN__IS_EXP(map)) {
                y = la_mul(la_mul(y, la_load(by[0])), la_load(by[1]));
                y = la_normal(y);
                la_store(at, y);
            }
            if (feature || LINATTN__IS_SIGNED(map)) continue;
            la_store(sum, la_fma(y, la_load(z + f), la_load(sum)));
        }
    }
}
#endif
#endif

/* What the run needs of NF vectors of features from f. */
LINATTN__INLINE void la_stage_begin(const linattn__span *s, size_t f, const float *lows, la_vec *z,
                                    la_vec *e, la_vec *low, const size_t NF)
{
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        z[j] = la_load(s->z + f + j * LA_W);
        e[j] = la_load(s->e + f + j * LA_W);
        low[j] = la_load(lows + j * LA_W);
    }
}

LINATTN__INLINE void la_stage_end(const linattn__span *s, size_t f, const la_vec *z,
                                  const la_vec *low, const int map, const size_t NF)
{
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        la_store(s->z + f + j * LA_W, z[j]);
        if (LINATTN__IS_SIGNED(map)) la_store(s->e + f + j * LA_W, low[j]);
    }
}

/* Maps NF vectors of features from f for the tokens of a run. With keys, z follows token by token,
   and each query sees z after its own key. Denominators gather in w->den, lane f % 16. */
LINATTN__INLINE void la_stage_vectors(const linattn__span *s, la_scratch *w, const la_chunk *c,
                                      size_t f, const float *lows, int keys, const int map,
                                      const int feature, const size_t NF)
{
    const linattn__params local = *s->params, *p = &local; /* which no store can change */
    const size_t k_token = keys ? c->k.row : 0, q_token = c->q.row, at = f - c->f0;
    const size_t row = c->row0 + c->t;
    const float *x = c->q.at + at + c->t * q_token, *top_at = w->top + row;
    const float *k = keys ? c->k.at + at + c->t * k_token : x;
    float *phi_k = w->k + c->t * LA_ROW + at, *phi_q = w->q + row * LA_ROW + at;
    float *den_at = w->den + row * 16 + f % 16, *lost_at = w->lost + row * 16 + f % 16;
    const int lanes = NF > 1 ? LA_W : la_lanes_left(c->f1, f), fresh = c->fresh;
    la_vec z[LA_STAGE_VECS], low[LA_STAGE_VECS], e[LA_STAGE_VECS];
    const size_t terms = NF < LA_PANEL_VECS ? NF : LA_PANEL_VECS;
    size_t t, j;
    la_stage_begin(s, f, lows, z, e, low, NF);
    for (t = c->end - c->t; t > 0; t--) {
        la_vec den[LA_STAGE_VECS], lost[LA_STAGE_VECS], phi;
        float top = *top_at++;
        if (LINATTN__IS_EXP(map) && !(top > -LINATTN__INF)) top = 0.0f; /* all weights are 0 */
        LINATTN__UNROLL for (j = 0; j < terms; j++)
        {
            den[j] = la_load(den_at + j * LA_W);
            lost[j] = LINATTN__IS_SIGNED(map) ? la_load(lost_at + j * LA_W) : la_zero();
        }
        LINATTN__UNROLL for (j = 0; j < NF; j++)
        {
            if (keys) {
                phi = la_stage_key(p, k + j * LA_W, phi_k + j * LA_W, fresh, lanes, e[j], map);
                z[j] = la_add_key(z[j], phi, &low[j], map);
            }
            phi = la_phi_query(p, x + j * LA_W, lanes, feature ? la_zero() : e[j], top, map);
            phi =
                la_weigh_query(phi, z[j], low[j], &den[j % terms], &lost[j % terms], map, feature);
            la_store(phi_q + j * LA_W, phi);
        }
        LINATTN__UNROLL for (j = 0; j < terms; j++)
        {
            la_store(den_at + j * LA_W, den[j]);
            if (LINATTN__IS_SIGNED(map)) la_store(lost_at + j * LA_W, lost[j]);
        }
        for (j = 0; LA_W > 1 && j < NF * LA_W; j += 16) {
            LINATTN__FETCH(x + c->q_ahead + j);
            LINATTN__FETCH(k + c->k_ahead + j);
        }
        k += k_token;
        x += q_token;
        phi_k += LA_ROW;
        phi_q += LA_ROW;
        den_at += 16;
        lost_at += 16;
    }
    if (keys && c->keep) la_stage_end(s, f, z, low, map, NF);
}

#if LA_CONSTANTS
#define LA_STAGE_PAIR (LA_STAGE_VECS < 2 ? LA_STAGE_VECS : 2)

/* Whole groups of LA_STAGE_VECS vectors. Returns where it stopped. */
LINATTN__INLINE size_t la_stage_wide(const linattn__span *s, la_scratch *w, const la_chunk *c,
                                     int keys)
{
    const size_t step = LA_STAGE_VECS * LA_W, end = c->f0 + (c->f1 - c->f0) / step * step;
    size_t f = c->f0;
    switch (s->params->map) {
    case LINATTN_MAP_IDENTITY: /* its sums in two parts need the registers */
        for (; c->f1 - f >= LA_STAGE_PAIR * LA_W; f += LA_STAGE_PAIR * LA_W)
            la_stage_vectors(s, w, c, f, s->e + f, keys, LINATTN_MAP_IDENTITY, 0, LA_STAGE_PAIR);
        return f;
    case LINATTN_MAP_ELU1:
        for (; f < end; f += step)
            la_stage_vectors(s, w, c, f, s->e + f, keys, LINATTN_MAP_ELU1, 0, LA_STAGE_VECS);
        return f;
    case LINATTN_MAP_EXP:
        for (; f < end; f += step)
            la_stage_vectors(s, w, c, f, s->e + f, keys, LINATTN_MAP_EXP, 0, LA_STAGE_VECS);
        return f;
    default:
        for (; f < end; f += step)
            la_stage_vectors(s, w, c, f, s->e + f, keys, LINATTN_MAP_RELU, 0, LA_STAGE_VECS);
        return f;
    }
}
#endif

/* Features from f, vector by vector. */
static LINATTN__NOINLINE void la_stage_rest(const linattn__span *s, la_scratch *w,
                                            const la_chunk *c, int keys, size_t f)
{
#if LINATTN__HAS_COMPENSATED
    const int feature = (s->params->norm == LINATTN_NORM_FEATURE) + la_past_divides(s);
#else
    const int feature = s->params->norm == LINATTN_NORM_FEATURE;
#endif
    const int map = s->params->map;
    for (; f < c->f1; f += LA_W) {
        const float *lows = s->e + f;
#if LINATTN__HAS_COMPENSATED
        float past[LA_W];
        if (la_past_divides(s)) {
            la_past_z(s, f, LA_W, past);
            lows = past;
        }
#endif
        if (LA_CONSTANTS && LINATTN__HAS_ELU1 && LINATTN__IS_ELU1(map) && !feature)
            la_stage_vectors(s, w, c, f, lows, keys, LINATTN_MAP_ELU1, 0, 1);
        else if (LA_CONSTANTS && LINATTN__IS_EXP(map)) /* .85 of the time at (16,16) */
            la_stage_vectors(s, w, c, f, lows, keys, LINATTN_MAP_EXP, feature, 1);
        else
            la_stage_vectors(s, w, c, f, lows, keys, map, feature, 1);
    }
}

/* Maps a run of a chunk into scratch. The usual maps are compile-time constants where vectors are
   whole, so that their branches stand outside the loops; one copy does all the rest. */
static LINATTN__NOINLINE void la_stage(const linattn__span *s, la_scratch *w, const la_chunk *c,
                                       int keys)
{
    size_t f = c->f0;
#if LA_CONSTANTS
    if (s->params->norm != LINATTN_NORM_FEATURE) f = la_stage_wide(s, w, c, keys);
#endif
    if (f == c->f1) return;
    if (c->f1 - f <= 8 && la_half_filled(c->f1))
        LA_COMMON(stage_rest)(s, w, c, keys, f);
    else
        la_stage_rest(s, w, c, keys, f);
}

#ifndef LA_SUMS16
/* Lane t: what la_sum16 makes of the 16 floats at a + 16 t, for `count` rows, at least one; any
   numbers in lanes beyond. */
LINATTN__INLINE la_vec la_sums16(const float *a, size_t count)
{
    float folded[LA_W * LA_W];
    la_vec b[LA_W];
    size_t t, i, half;
    for (t = 0; t < LA_W; t++) {
        const float *const row = a + 16 * (t < count ? t : count - 1);
        la_vec x[LA_PANEL_VECS];
        LA_EACH_VEC for (i = 0; i < LA_PANEL_VECS; i++) x[i] = la_load(row + i * LA_W);
        LINATTN__UNROLL for (half = LA_PANEL_VECS / 2; half > 0; half /= 2)
            LINATTN__UNROLL for (i = 0; i < half; i++) x[i] = la_add(x[i], x[i + half]);
        la_store(folded + t * LA_W, x[0]);
    }
    la_transpose(folded, LA_W, b);
    for (half = LA_W / 2; half > 0; half /= 2)
        for (i = 0; i < half; i++) b[i] = la_add(b[i], b[i + half]);
    return b[0];
}
#endif

/* scale[t] = 1 / (denominator + epsilon), 0 for 0, never infinite, of `count` tokens: sums are made
   a vector at a time, as a load of numbers that were just stored one by one is long to wait for. */
static LINATTN__NOINLINE void la_invert(const float *den, float epsilon, float *scale, size_t count)
{
    size_t t;
    for (t = 0; t < count; t += LA_W) {
        const la_vec sum = la_add(la_sums16(den + t * 16, count - t), la_set1(epsilon));
        const la_vec r = la_clamp(la_div(la_set1(1.0f), sum));
        la_store(scale + t, la_select(la_eq(sum, la_zero()), la_zero(), r));
    }
}

#if LA_WALK
/* The keys that token t of a call sees. */
static uint64_t la_visible(const linattn__span *s, size_t t)
{
    const uint64_t i = s->seen + t + 1;
#if LINATTN__HAS_WINDOW
    const uint64_t keys = s->keys;
    if (s->window) return (i < keys ? i : keys) - (i > s->window ? i - s->window : 0);
#endif
    return i;
}
#endif

#if LINATTN__HAS_SIGNED
/* *scale = 1 / (denominator + epsilon) of the identity, whose terms may cancel: each lane with what
   its rounding lost is a double, and doubles are summed by the tree of la_sum16. Those from `lanes`
   on, a power of two, are 0. */
LINATTN__INLINE void la_cancel_one(const float *den, const float *lost, float epsilon, float *scale,
                                   const size_t lanes)
{
    la_dvec sum[16 / LA_DW];
    double part[LA_DW];
    size_t i, half;
    LINATTN__UNROLL for (i = 0; i < lanes / LA_DW; i++) sum[i] =
        la_dadd(la_dwiden(den + i * LA_DW), la_dwiden(lost + i * LA_DW));
    LINATTN__UNROLL for (half = lanes / LA_DW / 2; half > 0; half /= 2)
        LINATTN__UNROLL for (i = 0; i < half; i++) sum[i] = la_dadd(sum[i], sum[i + half]);
    la_dstore(part, sum[0]);
    LINATTN__UNROLL for (half = LA_DW / 2; half > 0; half /= 2)
        LINATTN__UNROLL for (i = 0; i < half; i++) part[i] = part[i] + part[i + half];
    linattn__cancelling(part[0] + (double)epsilon, scale);
}

#if LA_COLD
/* The same for `count` tokens. */
static LINATTN__NOINLINE void la_cancel(const float *den, const float *lost, float epsilon,
                                        float *scale, size_t count)
{
    for (; count > 0; count--, den += 16, lost += 16, scale++)
        la_cancel_one(den, lost, epsilon, scale, 16);
}
#endif
#endif

/* The denominator of a token that its 16 virtual lanes sum to. */
LINATTN__INLINE float la_denominator(const float *den)
{
    la_vec lanes[LA_PANEL_VECS];
    size_t i;
    for (i = 0; i < LA_PANEL_VECS; i++) lanes[i] = la_load(den + i * LA_W);
    return la_sum16(lanes);
}

/* Is the output factor just 1 / (denominator + epsilon)? Plain, it has no epsilon. */
LINATTN__INLINE int la_summed_factor(const linattn__params *p, const int plain)
{
    if (p->norm != LINATTN_NORM_SUM || LINATTN__IS_SIGNED(p->map)) return 0;
    return !(plain || LINATTN__IS_EXP(p->map)) || !(p->epsilon > 0.0f);
}

#if LINATTN__HAS_SIGNED
/* Or that in double? */
LINATTN__INLINE int la_cancelled_factor(const linattn__params *p)
{
    return p->norm == LINATTN_NORM_SUM && LINATTN__IS_SIGNED(p->map);
}
#endif

#if LA_COLD
/* The output factor of one query, once its denominator is complete: *scale 2^*power. */
static LINATTN__NOINLINE void la_factor(const linattn__span *s, const float *query,
                                        const float *den, const float *lost, const float *top,
                                        uint64_t seen, float *scale, float *power)
{
    const linattn__params *p = s->params;
    float sum, mass = 1.0f, mass_top = 0.0f, peak = 0.0f;
    *power = 0.0f;
#if LINATTN__HAS_SIGNED
    if (la_cancelled_factor(p)) {
        la_cancel(den, lost, p->epsilon, scale, 1);
        return;
    }
#endif
    (void)lost;
    if (LINATTN__IS_EXP(p->map) && *top > -LINATTN__INF) peak = *top;
#if LINATTN__HAS_SOFTMAX
    if (p->softmax && p->norm != LINATTN_NORM_FEATURE) la_mass(s, query, &mass, &mass_top);
#endif
    (void)query;
    sum = la_denominator(den);
    linattn__factor(p, &sum, peak, &mass, mass_top, seen, scale, power);
}
#endif

#if LA_WALK
/* The output factors of a run of one query head. */
static LINATTN__NOINLINE void la_finish(const linattn__span *s, la_scratch *w, const la_chunk *c)
{
    const size_t first = c->row0 + c->t, end = c->row0 + c->end;
    size_t row;
    if (la_summed_factor(s->params, 0)) {
        const float epsilon = s->params->epsilon;
        LA_OF(s, invert)(w->den + first * 16, epsilon, w->scale + first, end - first);
        return;
    }
#if LINATTN__HAS_SIGNED
    if (la_cancelled_factor(s->params)) {
        LA_OF(s, cancel)
        (w->den + first * 16, w->lost + first * 16, s->params->epsilon, w->scale + first,
         end - first);
        return;
    }
#endif
    for (row = first; row < end; row++) {
        const size_t t = row - c->row0;
        LA_OF(s, factor)
        (s, c->query + t * s->q_token, w->den + row * 16, w->lost + row * 16, w->top + row,
         c->own ? la_visible(s, c->t0 + t) : s->seen, w->scale + row, w->power + row);
    }
}
#endif

#if LA_COLD
/* Rows that are read out, once more: quotients of the identity, and of single monomials, saturate,
   as they may exceed floats; and norms length and none, and exp with norm feature, leave a power:
   out *= 2^power. */
static LINATTN__NOINLINE void la_end_rows(const linattn__span *s, const float *power, float *out,
                                          size_t count)
{
    const linattn__params *const p = s->params;
    const int monomials = LINATTN__HAS_FEATURES && p->map == LINATTN__MAP_POSITIVE;
    const int saturate =
        LINATTN__IS_SIGNED(p->map) || (monomials && p->norm == LINATTN_NORM_FEATURE);
    size_t t, c;
    for (t = 0; t < count; t++, out += s->out_token) {
        float n = p->norm == LINATTN_NORM_SUM ? 0.0f : power[t];
        int i;
        for (c = s->column_begin; saturate && c < s->column_end; c += LA_W) {
            const int lanes = la_lanes_left(s->column_end, c);
            la_store_part(out + c, la_clamp(la_load_part(out + c, lanes)), lanes);
        }
        for (i = 0; i < 3 && n != 0.0f; i++) { /* linattn__saturating_ldexp of each */
            const float step = n > 127.0f ? 127.0f : n < -126.0f ? -126.0f : n;
            const la_vec by = la_set1(linattn__pow2((int)step));
            for (c = s->column_begin; c < s->column_end; c += LA_W) {
                const int lanes = la_lanes_left(s->column_end, c);
                la_vec x = la_mul(la_load_part(out + c, lanes), by);
                if (step > 0.0f) x = la_clamp(x);
                la_store_part(out + c, la_normal(x), lanes);
            }
            n = n - step;
        }
    }
}
#endif

#if LA_WALK
/* Columns beyond dv are zero. A phi that is not finite (which z then shows for good) has made NaN
   of those that share a vector with others: they become zero again. */
LINATTN__SMALL static LINATTN__NOINLINE void la_clear_padding(const linattn__span *s)
{
    size_t f, i, c;
    if (s->dv % 16 == 0 || s->column_end < s->dv) return;
    for (f = s->row_begin; f < s->row_end; f += LA_W) {
        const la_vec z = la_load(s->z + f);
        if (!la_any(la_unordered(la_sub(z, z)))) continue;
#if LINATTN__HAS_HALF
        if (s->element) {
            linattn__clear_halves(s);
            return;
        }
#endif
        for (i = f; i < f + LA_W && i < s->row_end; i++)
            for (c = s->dv; c % 16 != 0; c++) s->s[(c / 16 * s->m + i) * 16 + c % 16] = 0.0f;
    }
}
#endif

/* ---- Sums: masked tokens and moving exponents ------------------------------------------------ */

/* Does key token t push any exponent up? E_f moves to n once n exceeds E_f + LINATTN__HEADROOM,
   which is one compare against a threshold in the units of x. */
LINATTN__INLINE la_mask la_moving(const linattn__params *p, la_vec x, la_vec e)
{
    const la_vec threshold = la_fma(e, la_set1(p->cell), la_set1(p->margin));
    return la_gt(la_min(la_set1(p->limit), x), threshold);
}

LINATTN__INLINE int la_moves(const linattn__span *s, size_t f0, size_t f1, const float *key)
{
    size_t f;
    for (f = f0; f < f1; f += LA_W) {
        const int lanes = la_lanes_left(f1, f);
        la_vec x = la_load_most(key + (f - f0), lanes);
        if (lanes < LA_W) x = la_first(x, la_set1(-LINATTN__INF), lanes);
        if (la_any(la_moving(s->params, x, la_load(s->e + f)))) return 1;
    }
    return 0;
}

#if LINATTN__HAS_HALF && LA_W > 1
/* x rounded to nearest even as bfloat16: 1.5 * 2^16 times its power of two leaves room for 8 bits.
   Below 2^-100 they get fewer, so that no sum is ever denormal; 2^112 and above become infinite. */
LINATTN__INLINE la_vec la_round(la_vec x)
{
    const la_vec one = la_max(la_set1(7.88860905e-31f), la_power(x)), by = la_set1(98304.0f);
    return la_fma(one, la_set1(-98304.0f), la_fma(one, by, x)); /* valgrind's fnma makes -0 */
}
#endif

#if LA_COLD
/* Multiplies row f of S and z_f by 2^(from - to), flushing what falls below FLT_MIN: in two
   factors, as one may be out of range. */
static LINATTN__NOINLINE void la_rescale_row(const linattn__span *s, size_t f, const float *from,
                                             const float *to)
{
    float factor[2];
    size_t c, i;
    if (!(*from >= LINATTN__LOWEST)) return; /* -inf: the row is still empty */
    linattn__two_factors(*from - *to, factor);
    s->z[f] = linattn__rescale(s->z[f], factor);
#if LINATTN__HAS_HALF
    if (s->element) {
        linattn__rescale_halves(s, f, factor);
        return;
    }
#endif
    for (c = s->column_begin; c < s->column_end; c += 16) {
        float *const row = s->s + c * s->m + f * 16;
        for (i = 0; i < 16; i += LA_W) la_store(row + i, la_rescale(la_load(row + i), factor));
#if LINATTN__HAS_WINDOW
        for (i = 0; c >= s->dv && i < 16; i++)
            if (row[i] < LINATTN__KEY_MIN) row[i] = 0.0f;
#endif
    }
}
#endif

#if LINATTN__HAS_WINDOW
/* The exponents of S with single keys beside it move in steps, to the least of them that leaves n
   within the headroom: so they depend on the largest n alone, and not on which key came first. */
LINATTN__INLINE la_vec la_level(la_vec n)
{
    const la_vec magic = la_set1(12582912.0f);
    const la_vec steps = la_fma(n, la_set1(1.0f / LINATTN__LEVEL),
                                la_set1(0.5f - (LINATTN__HEADROOM + 0.5f) / LINATTN__LEVEL));
    return la_mul(la_sub(la_add(steps, magic), magic), la_set1(LINATTN__LEVEL));
}
#endif

#if LA_COLD
static LINATTN__NOINLINE void la_settle(const linattn__span *s, size_t f0, size_t f1,
                                        const float *key)
{
    size_t f, i;
    for (f = f0; f < f1; f += LA_W) {
        const int lanes = la_lanes_left(f1, f);
        const la_vec x =
            la_first(la_load_part(key + (f - f0), lanes), la_set1(-LINATTN__INF), lanes);
        const la_vec e = la_load(s->e + f);
        const la_mask move = la_moving(s->params, x, e);
        la_vec n;
        float from[LA_W], to[LA_W];
        if (!la_any(move)) continue;
        n = la_exponent(x, s->params);
#if LINATTN__HAS_WINDOW
        if (s->column_end > s->dv) n = la_level(n);
#endif
        la_store(from, e);
        la_store(to, la_select(move, n, e));
        for (i = 0; i < (size_t)lanes; i++)
            if (to[i] > from[i]) la_rescale_row(s, f + i, from + i, to + i);
        la_store(s->e + f, la_load(to));
    }
}
#endif

/* Keys of features [f0, f1) from token t on: makes the moves of the first, and returns the end of
   the tokens that move no exponent after it. */
static LINATTN__NOINLINE size_t la_run(const linattn__span *s, size_t f0, size_t f1,
                                       const la_rows *k, size_t t, size_t count)
{
    la_settle(s, f0, f1, k->at + t * k->row);
    do t++;
    while (t < count && !la_moves(s, f0, f1, k->at + t * k->row));
    return t;
}

#if LA_WALK
/* How many tokens from t, at most `most`, are all masked (*masked is set), or all not. */
static LINATTN__NOINLINE size_t la_alike(const linattn__span *s, size_t t, size_t most, int *masked)
{
    const linattn__params *p = s->params;
    const float *key = s->k + t * s->k_token;
    size_t count = 1;
    if (most > s->n - t) most = s->n - t;
    *masked = 0;
    if (p->source == LINATTN__MONOMIALS || LINATTN__IS_SIGNED(p->map)) return most;
    *masked = linattn__masked(key, s->d);
    if (LA_BLOCK > 1 && !*masked) /* nearly always the first components tell */
        while (count < most && !(key[count * s->k_token] < -LINATTN__FLT_MAX)) count++;
    while (count < most && linattn__masked(key + count * s->k_token, s->d) == *masked) count++;
    return count;
}
#endif

/* Where vector u of the columns lies in row 0 of S. */
LINATTN__INLINE float *la_column(const linattn__span *s, size_t u)
{
    return s->s + (u / LA_PANEL_VECS) * 16 * s->m + (u % LA_PANEL_VECS) * LA_W;
}

/* Vector i of a tile, relative to its first: the tile starts a panel or stays within one. */
LINATTN__INLINE size_t la_offset(size_t m, size_t i)
{
    return (i / LA_PANEL_VECS) * 16 * m + (i % LA_PANEL_VECS) * LA_W;
}

/* Has row f of a panel the place, modulo 4 KiB, of row f - 1 or f + 1 of the panel beside it, or,
   with 32, of f - 2 or f + 2 of the next but one? Then, at some physical addresses, Zen 4 makes a
   load of the one wait for a store of 512 bits to the other: rows take up to three times as long.
 */
#define LA_SAME_PLACE(m, rows) ((((m) + 1) & ((rows)-3)) == 0)
#define LA_CLASH(m, rows) (LA_W == 16 && LA_SAME_PLACE(m, rows) && linattn__halved())

/* Loads or stores NR vectors of columns, of which the last one may be partial. */
LINATTN__INLINE void la_load_columns(la_vec *x, const float *from, int lanes, const size_t NR)
{
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] =
        la_load_part(from + j * LA_W, j + 1 < NR ? LA_W : lanes);
}

LINATTN__INLINE void la_store_columns(float *to, const la_vec *x, int lanes, const size_t NR)
{
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NR; j++)
        la_store_part(to + j * LA_W, x[j], j + 1 < NR ? LA_W : lanes);
}

#if LINATTN__HAS_PREFILL
/* ---- Sums: tiles ----------------------------------------------------------------------------- */

#define LA_ACCUMULATORS 24 /* most vectors of outputs in a tile */
#define LA_COPIED (LA_ACCUMULATORS * (LINATTN__BOTH ? 8 : LA_W)) /* floats of one that is copied */

#if LA_WALK
/* The tokens [begin, end) of a block that tiles are taken from: a tile is T tokens from t, NR
   vectors of columns from u, and one query head or G of them. */
typedef struct la_tile {
    const linattn__span *span;
    const float *k, *q;  /* features in scratch, token by token; q: query head by query head */
    const float *by;     /* what outputs are multiplied by, likewise, */
    int lowers;          /* or lowered by */
    const float *v;      /* of the block's first token, or NULL where no keys are taken */
    float *out;          /* of its first token and query head */
    size_t count, heads; /* tokens and query heads of the block */
    size_t begin, end;   /* tokens to do */
    size_t f0, f1;       /* features in scratch: rows of S */
    int first, last;     /* the first, the last of the features */
    int positive_zeros;  /* no sum is -0: its sign would tell whether keys outside a token's
                                 window, whose weights are 0, were in its tile */
    int keep;            /* the last of these heads leaves the new S behind */
    int ahead;           /* another whole block follows: fetch it, */
    int spread;          /* and its queries and keys with its outputs */
    const float *q_in;   /* operand of the first token and query head */
    const float *next_out, *next_v, *next_q, *next_k; /* of the tokens that are fetched */
} la_tile;

/* Where the numbers of a tile lie. */
typedef struct la_place {
    const float *k, *q; /* features of the first token and query head */
    float *row;         /* of S */
    float *to;          /* where new rows go, */
    size_t to_row;      /* so far apart: 0 where nobody keeps them, */
    size_t to_m;        /* and panels as if of so many rows */
    const float *by;    /* what outputs are multiplied by, or lowered by */
    const float *v;
    float *out;
    size_t v_token, out_token, out_head;
    int lanes; /* of the last vector, where vectors have 16 */
} la_place;

typedef void la_tiles(const la_tile *, const la_place *, unsigned);
#endif

/* The shape of a tile in one number. Where vectors have 4 or 8 lanes, columns that reach beyond dv
   are copied; AVX-512 has its last vectors of so many lanes. */
#define LA_TILE(keys, heads, tokens, vectors)                                                      \
    ((unsigned)(tokens) | (unsigned)((vectors)*LA_W) << 8 | (unsigned)(heads) << 16 |              \
     (unsigned)(keys) << 24 | (unsigned)(LA_W > 1 && LA_W < 16) << 25)
#define LA_TILE_TOKENS(tile) ((size_t)(tile)&255)
#define LA_TILE_COLUMNS(tile) ((size_t)(tile) >> 8 & 255)
#define LA_TILE_HEADS(tile) ((size_t)(tile) >> 16 & 255)
#define LA_TILE_KEYS(tile) ((int)((tile) >> 24 & 1))
#define LA_TILE_COPIES(tile) ((tile) >> 25)

#if LA_COLD && LA_W > 1
/* Fetches what the next block needs of the columns of one tile, from c0 on, so that the fetches are
   spread over the tiles: hardware alone does not keep up with four streams that take turns, strided
   ones least. Keys and queries are fetched where this block's are mapped, but for long queries
   alone, which would come too many at a time, and for those that features are made of. */
static LINATTN__NOINLINE void la_tile_fetch(const la_tile *a, size_t g, size_t t, size_t c0,
                                            unsigned tile)
{
    const linattn__span *s = a->span;
    const size_t columns = LA_TILE_COLUMNS(tile), heads = g + LA_TILE_HEADS(tile);
    const size_t end = t + LA_TILE_TOKENS(tile);
    /* tokens 4 KiB apart take the places of one another in L1 */
    const int apart = s->q_token % 1024 != 0 || (!a->spread && s->dv > 64);
    const int into_l1 = apart && linattn__near();
    size_t i, c;
    LINATTN__EFFECT();
    for (; g < heads; g++)
        for (i = t; i < end; i++)
            for (c = c0; c < c0 + columns; c += 16) {
                linattn__fetch(a->next_out + g * s->out_head + i * s->out_token + c, into_l1);
                if (LA_TILE_KEYS(tile) && g == 0)
                    linattn__fetch(a->next_v + i * s->v_token + c, into_l1);
                if (!a->spread || c >= s->d) continue;
                linattn__fetch(a->next_q + g * s->q_head + i * s->q_token + c, into_l1);
                if (LA_TILE_KEYS(tile) && g == 0)
                    linattn__fetch(a->next_k + i * s->k_token + c, into_l1);
            }
}
#endif

/* Copies `rows` rows of columns from u up to dv, with zeros up to `width`. */
LINATTN__INLINE void la_edge_rows(const linattn__span *s, float *to, size_t to_row,
                                  const float *from, size_t from_row, size_t rows, size_t u,
                                  size_t width)
{
    size_t i, c;
    for (i = 0; i < rows; i++)
        for (c = 0; c < width; c += LA_W)
            la_store(to + i * to_row + c,
                     la_load_part(from + i * from_row + c, la_lanes_left(s->dv, u * LA_W + c)));
}

#if LA_COLD && LA_W > 1
/* Copies values and outputs of a tile whose columns, from c on, reach beyond dv. */
static LINATTN__NOINLINE void la_edge_begin(const la_tile *a, float *v, float *to, size_t g,
                                            size_t t, size_t c, unsigned tile)
{
    const linattn__span *s = a->span;
    const size_t T = LA_TILE_TOKENS(tile), G = LA_TILE_HEADS(tile), width = LA_TILE_COLUMNS(tile);
    const float *const out = a->out + g * s->out_head + t * s->out_token + c;
    size_t h;
    LINATTN_ASSERT(G * T * width <= LA_ACCUMULATORS * LA_W);
    if (LA_TILE_KEYS(tile))
        la_edge_rows(s, v, width, a->v + t * s->v_token + c, s->v_token, T, c / LA_W, width);
    for (h = 0; h < G && !a->first; h++)
        la_edge_rows(s, to + h * T * width, width, out + h * s->out_head, s->out_token, T, c / LA_W,
                     width);
}

/* By pieces, as AVX2's masked store is microcode on AMD. */
static LINATTN__NOINLINE void la_edge_end(const la_tile *a, const float *from, size_t g, size_t t,
                                          size_t c0, unsigned tile)
{
    const linattn__span *s = a->span;
    const size_t left = s->dv - c0, end = g + LA_TILE_HEADS(tile);
    size_t i, c;
    for (; g < end; g++) {
        float *to = a->out + g * s->out_head + t * s->out_token + c0;
        for (i = LA_TILE_TOKENS(tile); i > 0; i--, to += s->out_token) {
            for (c = 0; left - c >= LA_W; c += LA_W) la_store(to + c, la_load(from + c));
            if (left & LA_W / 2 & 4) {
                linattn__copy(to + c, from + c, 16);
                c += 4;
            }
            for (; c < left; c++) to[c] = from[c];
            from += LA_TILE_COLUMNS(tile);
        }
    }
}
#endif

#if LA_WALK
/* Tiles of several heads, or in copies of values and outputs: as la_take_run, from x on. */
static LINATTN__NOINLINE size_t la_take_others(const la_tile *a, la_tiles *take, la_place *x,
                                               size_t first, size_t heads, size_t t, size_t end,
                                               size_t c, unsigned tile, int fetches)
{
    const linattn__span *s = a->span;
    const size_t T = LA_TILE_TOKENS(tile), G = LA_TILE_HEADS(tile);
    float nowhere[32], *const line = (float *)(void *)(((uintptr_t)nowhere + 63) / 64 * 64);
    const int copies = LA_TILE_COPIES(tile) && x->lanes < 16;
    float v[LA_COPIED], out[LA_COPIED];
    size_t g;
    (void)fetches;
    if (copies) {
        x->v_token = x->out_token = LA_TILE_COLUMNS(tile);
        x->out_head = T * x->out_token;
    }
    for (; end - t >= T; t += T, x->k += T * LA_ROW) {
        for (g = first; g < heads; g += G) {
            const size_t at = g * a->count + t;
            /* heads before the last store their rows nowhere: a branch in the tile would have clang
               move half of the arithmetic behind it, and spill */
            const int keep = a->keep && g + G == a->heads;
            x->q = a->q + at * LA_ROW;
            x->by = a->by + at;
            x->to = keep ? x->row : line;
            x->to_row = keep ? 16 : 0;
            x->to_m = keep ? s->m : 0;
            x->out = copies ? out : a->out + g * s->out_head + t * s->out_token + c;
            x->v = copies ? v : LA_TILE_KEYS(tile) ? a->v + t * s->v_token + c : x->out;
#if LINATTN__BOTH || LA_W > 1
            if (fetches) LA_VECTOR(tile_fetch)(a, g, t, c, tile);
            if (copies) LA_VECTOR(edge_begin)(a, v, out, g, t, c, tile);
#endif
            take(a, x, tile);
#if LINATTN__BOTH || LA_W > 1
            if (copies) LA_VECTOR(edge_end)(a, out, g, t, c, tile);
#endif
        }
    }
    return t;
}

/* Tiles of one shape by `take`: columns from c, query heads [g, heads) and tokens from t, as many
   as come out even before `end`. Returns where they ended. What addresses there are in a tile is
   found here, once for all shapes. */
LINATTN__INLINE size_t la_take_run(const la_tile *a, la_tiles *take, size_t g, size_t heads,
                                   size_t t, size_t end, size_t c, unsigned tile)
{
    const linattn__span *s = a->span;
    const size_t T = LA_TILE_TOKENS(tile), columns = LA_TILE_COLUMNS(tile);
    const size_t beyond = c + columns > s->dv ? c + columns - s->dv : 0;
    /* not for the few tokens that are left over */
    const int fetches = a->ahead && T * LA_TILE_HEADS(tile) > (LA_TILE_KEYS(tile) ? 2 : 4) &&
                        (columns % 16 == 0 || c % 16 == 0);
    la_place x;
    x.k = a->k + t * LA_ROW;
    x.row = x.to = s->s + c / 16 * 16 * s->m + c % 16 + a->f0 * 16;
    x.to_row = 16;
    x.to_m = s->m;
    x.v_token = LA_TILE_KEYS(tile) ? s->v_token : 0;
    x.out_token = s->out_token;
    x.out_head = s->out_head;
    x.lanes = 16 - (int)beyond;
    /* blocks of one token take query heads one by one: not all of those keep their rows */
    if ((beyond && LA_TILE_COPIES(tile)) || heads > 1 || (LA_TILE_KEYS(tile) && !a->keep))
        return la_take_others(a, take, &x, g, heads, t, end, c, tile, fetches);
    x.q = a->q + t * LA_ROW;
    x.by = a->by + t;
    x.out = a->out + t * s->out_token + c;
    x.v = LA_TILE_KEYS(tile) ? a->v + t * s->v_token + c : x.out;
    for (; end - t >= T; t += T) {
#if LINATTN__BOTH || LA_W > 1
        if (fetches) LA_VECTOR(tile_fetch)(a, g, t, c, tile);
#endif
        take(a, &x, tile);
        x.k += T * LA_ROW;
        x.q += T * LA_ROW;
        x.by += T;
        x.v += T * x.v_token;
        x.out += T * s->out_token;
    }
    return t;
}

/* Tokens [t, end): tiles of full height, as `tile` says, then of `few` tokens, a power of two where
   that is less, then of one. Of the query heads of a tile of one head, the last one leaves the new
   rows behind. Returns at which token it stopped: where `many`, before those that would go one by
   one. */
static LINATTN__NOINLINE size_t la_take(const la_tile *a, la_tiles *take, size_t g, size_t heads,
                                        size_t t, size_t end, size_t c, unsigned tile, size_t few,
                                        int many)
{
    const size_t most = LA_TILE_TOKENS(tile);
    size_t left, to, rest;
    for (; (left = end - t) > 0; t = la_take_run(a, take, g, heads, t, to, c, tile)) {
        size_t T = most;
        to = end;
        if (left < most) {
            T = left < few ? 1 : few;
            if (many && T == 1) break;
        } else if (few > 2 && few < most) {
            for (rest = left; rest >= most;) rest -= most;
            if (rest & (few - 1)) { /* 8 tokens and the like come out even in lower tiles */
                if (!(left & (few - 1))) T = few;
                to = t + T;
            }
        }
        tile += (unsigned)(T - LA_TILE_TOKENS(tile));
    }
    return t;
}
#endif

/* Compilers lose sight of a constant whose struct is passed on. */
LINATTN__INLINE int la_place_lanes(const la_place *x) { return LA_W == 16 ? x->lanes : LA_W; }

LINATTN__INLINE void la_tile_begin(const la_tile *a, const la_place *x, size_t h, la_vec *o,
                                   const size_t T, const size_t NR)
{
    const float *const out = x->out + h * x->out_head;
    const size_t out_token = x->out_token;
    const int lanes = la_place_lanes(x);
    size_t i;
    if (a->first) {
        LINATTN__UNROLL for (i = 0; i < T * NR; i++) o[i] = la_zero();
        return;
    }
    if (T == 1) { /* clang 14 keeps a loop over one token, and with it o in memory */
        la_load_columns(o, out, lanes, NR);
        return;
    }
    LINATTN__UNROLL for (i = 0; i < T; i++)
        la_load_columns(o + i * NR, out + i * out_token, lanes, NR);
}

LINATTN__INLINE void la_tile_end(const la_tile *a, const la_place *x, size_t h, la_vec *o,
                                 const int keys, const size_t T, const size_t NR)
{
    float *const out = x->out + h * x->out_head;
    const float *by = x->by + h * a->count;
    const size_t out_token = x->out_token; /* here, as stores could change it */
    const int lanes = la_place_lanes(x);
    size_t i, j;
    if (!keys && a->positive_zeros) {
        LINATTN__UNROLL for (i = 0; i < T * NR; i++) o[i] = la_add(o[i], la_zero());
    }
    if (!keys && a->last && a->lowers) {
        LINATTN__UNROLL for (i = 0; i < T; i++) LINATTN__UNROLL for (j = 0; j < NR; j++)
            o[i * NR + j] = la_sub(o[i * NR + j], la_set1(by[i]));
    } else if (a->last) {
        LINATTN__UNROLL for (i = 0; i < T; i++) LINATTN__UNROLL for (j = 0; j < NR; j++)
            o[i * NR + j] = la_mul(o[i * NR + j], la_set1(by[i]));
    }
    LINATTN__UNROLL for (i = 0; i < T; i++)
        la_store_columns(out + i * out_token, o + i * NR, lanes, NR);
}

/* The recurrence of Katharopoulos et al. 2020, eq. 18-20: each row of S is loaded once for T
   tokens, which in turn add to it and are read by G query heads. */
LINATTN__INLINE void la_causal_tile(const la_tile *a, const la_place *x, const size_t G,
                                    const size_t T, const size_t NR)
{
    const size_t m = a->span->m, q_head = a->count * LA_ROW, to_row = x->to_row, to_m = x->to_m;
    const float *const k = x->k, *q[4], *row = x->row;
    float *to = x->to;
    la_vec o[LA_ACCUMULATORS], v[LA_ACCUMULATORS];
#ifdef __clang__ /* 14 keeps o of several heads in memory */
    la_vec sum[LA_ACCUMULATORS];
#else
    la_vec *const sum = o;
#endif
    const size_t count = a->f1 - a->f0;
    size_t f, h, i, j;
    LINATTN__UNROLL for (h = 0; h < G; h++)
    {
        q[h] = x->q + h * q_head;
        if (G > 1)
            LINATTN__OPAQUE(q[h]); /* or gcc keeps sums of offsets, and runs out of registers */
    }
    if (G == 1) { /* clang 14 keeps a loop over one head, and with it o in memory */
        la_tile_begin(a, x, 0, o, T, NR);
    } else {
        LINATTN__UNROLL for (h = 0; h < G; h++) la_tile_begin(a, x, h, o + h * T * NR, T, NR);
    }
    LINATTN__UNROLL for (i = 0; i < T; i++)
        la_load_columns(v + i * NR, x->v + i * x->v_token, la_place_lanes(x), NR);
#ifdef __clang__
    LINATTN__UNROLL for (i = 0; i < G * T * NR; i++) sum[i] = o[i];
#endif
    for (f = 0; f < count; f++, row += 16, to += to_row) {
        la_vec s[4];
        LINATTN__UNROLL for (j = 0; j < NR; j++) s[j] = la_load(row + la_offset(m, j));
        LINATTN__UNROLL for (i = 0; i < T; i++)
        {
            const la_vec kf = la_set1(k[f + i * LA_ROW]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) s[j] = la_fma_hot(kf, v[i * NR + j], s[j]);
            LINATTN__UNROLL for (h = 0; h < G; h++)
            {
                const la_vec qf = la_set1(q[h][f + i * LA_ROW]);
                la_vec *const at = sum + (h * T + i) * NR;
                LINATTN__UNROLL for (j = 0; j < NR; j++) at[j] = la_fma_hot(qf, s[j], at[j]);
            }
        }
        LINATTN__UNROLL for (j = 0; j < NR; j++) la_store(to + la_offset(to_m, j), s[j]);
    }
#ifdef __clang__
    LINATTN__UNROLL for (i = 0; i < G * T * NR; i++) o[i] = sum[i];
#endif
    if (G == 1) {
        la_tile_end(a, x, 0, o, 1, T, NR);
    } else {
        LINATTN__UNROLL for (h = 0; h < G; h++) la_tile_end(a, x, h, o + h * T * NR, 1, T, NR);
    }
}

LINATTN__INLINE void la_query_tile(const la_tile *a, const la_place *x, const size_t T,
                                   const size_t NR)
{
    const size_t m = a->span->m;
    const float *q = x->q, *row = x->row;
    la_vec o[LA_ACCUMULATORS];
    size_t f, i, j;
    la_tile_begin(a, x, 0, o, T, NR);
    for (f = a->f1 - a->f0; f > 0; f--, q++, row += 16) {
        la_vec s[LA_LONE_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) s[j] = la_load(row + la_offset(m, j));
        LINATTN__UNROLL for (i = 0; i < T; i++)
        {
            const la_vec qf = la_set1(q[i * LA_ROW]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) o[i * NR + j] =
                la_fma_hot(qf, s[j], o[i * NR + j]);
        }
    }
    la_tile_end(a, x, 0, o, 0, T, NR);
}

/* A tile that takes keys. Each shape stands here once. */
static LINATTN__NOINLINE void la_take_keys(const la_tile *a, const la_place *x, unsigned tile)
{
    if (tile == LA_TILE(1, 1, LA_CAUSAL_TOKENS, LA_CAUSAL_VECS))
        la_causal_tile(a, x, 1, LA_CAUSAL_TOKENS, LA_CAUSAL_VECS);
#if LA_W > 1
    else if (tile == LA_TILE(1, 1, LA_CAUSAL_TALL, 1))
        la_causal_tile(a, x, 1, LA_CAUSAL_TALL, 1);
#endif
#if LA_CAUSAL_WIDE > 0
    else if (tile == LA_TILE(1, 1, LA_CAUSAL_WIDE, 4))
        la_causal_tile(a, x, 1, LA_CAUSAL_WIDE, 4);
#endif
#if LA_GROUP_TOKENS > 1
    else if (tile == LA_TILE(1, 2, LA_GROUP_TOKENS, LA_CAUSAL_VECS))
        la_causal_tile(a, x, 2, LA_GROUP_TOKENS, LA_CAUSAL_VECS);
    else if (tile == LA_TILE(1, 4, LA_GROUP_TOKENS / 2, LA_CAUSAL_VECS))
        la_causal_tile(a, x, 4, LA_GROUP_TOKENS / 2, LA_CAUSAL_VECS);
#endif
#if LA_W > 1
    else if (LA_CAUSAL_FEW > 1 && tile == LA_TILE(1, 1, LA_CAUSAL_FEW, LA_CAUSAL_VECS))
        la_causal_tile(a, x, 1, LA_CAUSAL_FEW, LA_CAUSAL_VECS);
    else if (tile == LA_TILE(1, 1, 1, LA_CAUSAL_VECS))
        la_causal_tile(a, x, 1, 1, LA_CAUSAL_VECS);
#endif
    else
        la_causal_tile(a, x, 1, 1, 1);
}

/* And one that only reads. */
static LINATTN__NOINLINE void la_take_reads(const la_tile *a, const la_place *x, unsigned tile)
{
    if (tile == LA_TILE(0, 1, LA_QUERY_TOKENS, LA_QUERY_VECS))
        la_query_tile(a, x, LA_QUERY_TOKENS, LA_QUERY_VECS);
#if LA_W > 1
    else if (tile == LA_TILE(0, 1, LA_QUERY_TALL, 1))
        la_query_tile(a, x, LA_QUERY_TALL, 1);
    else if (LA_QUERY_FEW > 1 && tile == LA_TILE(0, 1, LA_QUERY_FEW, LA_QUERY_VECS))
        la_query_tile(a, x, LA_QUERY_FEW, LA_QUERY_VECS);
    else if (tile == LA_TILE(0, 1, 2, LA_SINGLE_VECS))
        la_query_tile(a, x, 2, LA_SINGLE_VECS);
    else if (LA_SINGLE_VECS > LA_QUERY_VECS && tile == LA_TILE(0, 1, 1, LA_LONE_VECS))
        la_query_tile(a, x, 1, LA_LONE_VECS);
    else if (tile == LA_TILE(0, 1, 1, LA_SINGLE_VECS))
        la_query_tile(a, x, 1, LA_SINGLE_VECS);
    else if (tile == LA_TILE(0, 1, 1, LA_QUERY_VECS))
        la_query_tile(a, x, 1, LA_QUERY_VECS);
#endif
    else
        la_query_tile(a, x, 1, 1);
}

/* The tiles that only read, of vectors [u, end) of columns. */
static LINATTN__NOINLINE void la_read_columns(const la_tile *a, size_t u, size_t end)
{
    const int many = LA_SINGLE_VECS > LA_QUERY_VECS;
    size_t begin = u, t = a->end, vectors;
    for (; end - u >= LA_QUERY_VECS; u += LA_QUERY_VECS)
        t = la_take(a, la_take_reads, 0, a->heads, a->begin, a->end, u * LA_W,
                    LA_TILE(0, 1, LA_QUERY_TOKENS, LA_QUERY_VECS), LA_QUERY_FEW, many);
    /* one token, or two, would wait for each sum of so few: twice as many, or four times */
    for (; many && t < a->end && begin < u; begin += vectors) {
        unsigned tile = LA_TILE(0, 1, 2, LA_SINGLE_VECS);
        if (u - begin < LA_SINGLE_VECS) tile = LA_TILE(0, 1, 1, LA_QUERY_VECS);
        if (u - begin >= LA_LONE_VECS && a->end - t == 1) tile = LA_TILE(0, 1, 1, LA_LONE_VECS);
        vectors = LA_TILE_COLUMNS(tile) / LA_W;
        (void)la_take(a, la_take_reads, 0, a->heads, t, a->end, begin * LA_W, tile, 1, 0);
    }
    for (; LA_QUERY_VECS > 1 && u < end; u++)
        (void)la_take(a, la_take_reads, 0, a->heads, a->begin, a->end, u * LA_W,
                      LA_TILE(0, 1, LA_QUERY_TALL, 1), LA_QUERY_TALL, 0);
}

/* Those of all columns of this job: of S, of a projection, of scores. */
static LINATTN__NOINLINE void la_read_tiles(const la_tile *a)
{
    const size_t half = linattn__halved() ? la_half_filled(a->span->column_end) : 0;
    const size_t end = (a->span->column_end + LA_W - 1) / LA_W - half;
    la_read_columns(a, a->span->column_begin / LA_W, end);
    if (half) LA_COMMON(read_columns)(a, 2 * end, 2 * end + 1);
}

/* Tokens [t, end) of query heads from g and LA_CAUSAL_VECS vectors from u. */
static LINATTN__NOINLINE void la_causal_run(const la_tile *a, size_t g, size_t t, size_t end,
                                            size_t u)
{
    if (g < a->heads)
        (void)la_take(a, la_take_keys, g, a->heads, t, end, u * LA_W,
                      LA_TILE(1, 1, LA_CAUSAL_TOKENS, LA_CAUSAL_VECS), LA_CAUSAL_FEW, 0);
}

/* Grouped queries: tiles of four or two query heads, and so fewer tokens, save as many walks over
   rows. */
static LINATTN__NOINLINE void la_group_columns(const la_tile *a, size_t u)
{
    size_t t = a->begin;
#if LA_GROUP_TOKENS > 1
    const int pairs = a->heads < 4 || a->heads / 2 == 3; /* six or seven: three are faster than four
                                                            and what is left */
    const size_t step = pairs ? LA_GROUP_TOKENS : LA_GROUP_TOKENS / 2;
    const size_t heads = a->heads - a->heads % (pairs ? 2 : 4);
    const unsigned tile = pairs ? LA_TILE(1, 2, LA_GROUP_TOKENS, LA_CAUSAL_VECS)
                                : LA_TILE(1, 4, LA_GROUP_TOKENS / 2, LA_CAUSAL_VECS);
    while (a->end - t >= step) {
        const size_t begin = t;
        t += heads < a->heads ? step : (a->end - t) / step * step;
        (void)la_take(a, la_take_keys, 0, heads, begin, t, u * LA_W, tile, step, 0);
        la_causal_run(a, heads, begin, t, u);
    }
#endif
    la_causal_run(a, 0, t, a->end, u);
}

/* Vectors [u, end) of columns. */
LINATTN__SMALL static LINATTN__NOINLINE void la_causal_columns(const la_tile *a, size_t u,
                                                               size_t end)
{
    for (; !LA_CLASH(a->span->m, 64) && end - u >= LA_CAUSAL_VECS; u += LA_CAUSAL_VECS) {
        if (a->heads == 1)
            la_causal_run(a, 0, a->begin, a->end, u);
        else
            la_group_columns(a, u);
    }
    for (; LA_CAUSAL_VECS > 1 && u < end; u++)
        (void)la_take(a, la_take_keys, 0, a->heads, a->begin, a->end, u * LA_W,
                      LA_TILE(1, 1, LA_CAUSAL_TALL, 1), 1, 0);
}

/* The tiles of causal, of all columns of this job. */
static LINATTN__NOINLINE void la_causal_tiles(const la_tile *a)
{
    const size_t half = linattn__halved() ? la_half_filled(a->span->column_end) : 0;
    const size_t end = (a->span->column_end + LA_W - 1) / LA_W - half;
    size_t u = a->span->column_begin / LA_W;
#if LA_CAUSAL_WIDE > 0
    /* From token to token the sums of a row wait for one another: the taller a tile, the more rows
       have to be under way at once, for which a core that two threads share lacks room. No tile of
       one token is left over, but one of LA_CAUSAL_TOKENS. */
    const size_t count = a->end - a->begin;
    size_t few =
        count % LA_CAUSAL_WIDE == 1 && count > 1 ? LA_CAUSAL_TOKENS : count % LA_CAUSAL_WIDE;
    if (linattn__near()) /* an odd one would be left alone */
        few = count % 2 && count > 1 ? count - LA_CAUSAL_WIDE : count;
    else if (linattn__halved())
        few = count;
    for (; few < count && a->heads == 1 && a->keep && end - u >= 4; u += 4) {
        la_tile rest = *a;
        rest.begin = a->end - few;
        (void)la_take(a, la_take_keys, 0, 1, a->begin, rest.begin, u * LA_W,
                      LA_TILE(1, 1, LA_CAUSAL_WIDE, 4), LA_CAUSAL_WIDE, 0);
        if (few > 0) la_causal_columns(&rest, u, u + 4);
    }
#endif
    la_causal_columns(a, u, end);
    if (half) LA_COMMON(causal_columns)(a, 2 * end, 2 * end + 1);
}

/* ---- Sums: blocks of tokens ------------------------------------------------------------------ */

#if LA_WALK
#if LINATTN__HAS_FEATURES
static void la_project(const linattn__span *s, const float *x, size_t x_token, size_t count,
                       size_t f0, size_t f1, float *y, size_t y_row, float *other,
                       size_t other_row);
#if !LINATTN__BOTH
static void la_multiply(const linattn__span *s, const float *x, size_t x_token, size_t count,
                        size_t f0, size_t f1, float *y, size_t y_row);
#endif
#endif

/* Code that stands once: but for scalar code, which is to use little stack. Where the tiles that
   only read are needed for nothing else, a program that does not call linattn_query has none. */
#if LA_BLOCK > 1 && (LINATTN__HAS_FEATURES || LINATTN__HAS_WINDOW)
#define LA_ONCE static LINATTN__NOINLINE
#define LA_WITHIN LINATTN__INLINE
#elif LINATTN__BOTH && defined(LINATTN__MINIMAL) /* inline only if it must be, and it is to be */
#define LA_ONCE static inline __attribute__((always_inline, unused))
#define LA_WITHIN LA_ONCE
#else
#define LA_ONCE LINATTN__INLINE
#define LA_WITHIN LINATTN__INLINE
#endif

/* The inputs of the map: `count` tokens of an operand from x, features [f0, f1), where they lie or
   made into y. */
LA_ONCE la_rows la_inputs(const linattn__span *s, const float *x, size_t x_token, size_t count,
                          size_t f0, size_t f1, float *y, size_t y_row)
{
    la_rows rows;
#if LINATTN__HAS_UNIT
    if (s->params->source == LINATTN__UNIT) {
        LA_OF(s, unit)(s, x, x_token, count, f0, f1, y, y_row);
        rows.at = y;
        rows.row = y_row;
        return rows;
    }
#endif
#if LINATTN__HAS_FEATURES
    rows.at = y;
    rows.row = y_row;
    if (s->params->source == LINATTN__PROJECTED) {
        la_project(s, x, x_token, count, f0, f1, y, y_row, NULL, 0);
        return rows;
    }
    if (s->params->source == LINATTN__MONOMIALS) {
        LA_OF(s, multiply)(s, x, x_token, count, f0, f1, y, y_row);
        return rows;
    }
#else
    (void)s;
    (void)count;
    (void)f1;
    (void)y;
    (void)y_row;
#endif
    rows.at = x + f0;
    rows.row = x_token;
    return rows;
}

#if LINATTN__HAS_COMPENSATED
LINATTN__COLD static void la_past_run(const linattn__span *s, la_scratch *w, la_chunk *c,
                                      const la_tile *a);
#endif

/* One run of tokens of a chunk: stages all query heads, then takes the tiles. */
LA_WITHIN void la_block_run(const linattn__span *s, la_scratch *w, la_chunk *c, la_tile *a,
                            const la_rows *queries, size_t g0, int keep, const int keys)
{
    size_t g;
    for (g = 0; g < a->heads; g++) {
        c->row0 = g * c->count;
        c->query = s->q + (g0 + g) * s->q_head + c->t0 * s->q_token;
        c->q.at = queries->at +
                  g * (s->params->source == LINATTN__DIRECT ? s->q_head : c->count * queries->row);
        c->q.row = queries->row;
        c->out = a->out + g * s->out_head;
        c->keep = keep && g + 1 == a->heads;
        c->fresh = g == 0;
        if (LINATTN__IS_EXP(s->params->map)) la_peaks(s, w, c);
        LA_OF(s, stage)(s, w, c, keys);
        if (c->last && !LINATTN__PAST(s)) la_finish(s, w, c);
    }
    a->begin = c->t;
    a->end = c->end;
    a->last = c->last && !LINATTN__PAST(s);
    if (keys)
        LA_OF(s, causal_tiles)(a);
    else
        LA_OF(s, read_tiles)(a);
#if LINATTN__HAS_COMPENSATED
    if (s->past) la_past_run(s, w, c, a);
#endif
}
#endif

LINATTN__INLINE void la_copy(float *to, const float *from, size_t n)
{
    size_t i;
    for (i = 0; n - i >= LA_W; i += LA_W) la_store(to + i, la_load(from + i));
    if (i < n) la_store_part(to + i, la_load_part(from + i, (int)(n - i)), (int)(n - i));
}

#if LA_WALK
/* Where projected features come with both signs, those of the first half are kept for the second,
   behind the rows of so few tokens: the floats of each, or 0 where too few would be left. */
LINATTN__INLINE size_t la_kept_signs(const linattn__span *s)
{
#if LINATTN__HAS_FEATURES
    const size_t signs = s->params->signs;
    const size_t least = s->k ? 12 : 8; /* tokens: with keys more work is done block by block */
    if (LA_BLOCK > 1 && signs && LA_BLOCK * LA_ROW / (LA_ROW + signs + 16) >= least)
        return signs + 16;
#endif
    (void)s;
    return 0;
}

/* Query heads times tokens of a block. */
LINATTN__INLINE size_t la_most(const linattn__span *s)
{
    const size_t kept = la_kept_signs(s);
    return kept ? LA_BLOCK * LA_ROW / (LA_ROW + kept) : LA_BLOCK;
}

#if LINATTN__HAS_FEATURES || LINATTN__HAS_UNIT
/* The inputs of a chunk, made into y. */
LINATTN__COLD static LINATTN__NOINLINE void la_chunk_made(const linattn__span *s, const la_chunk *c,
                                                          const float *x, size_t x_token, float *y,
                                                          float *kept)
{
#if LINATTN__HAS_FEATURES && LA_BLOCK > 1
    const size_t row = la_kept_signs(s), signs = s->params->signs;
    const size_t middle = c->f0 > signs ? c->f0 : c->f1 < signs ? c->f1 : signs;
    size_t t;
    if (row) {
        if (c->f0 < middle)
            la_project(s, x, x_token, c->count, c->f0, middle, y, LA_ROW, kept + c->f0, row);
        for (t = 0; t < c->count && middle < c->f1; t++)
            linattn__copy(y + t * LA_ROW + (middle - c->f0), kept + t * row + (middle - signs),
                          (c->f1 - middle) * sizeof(float));
        return;
    }
#endif
    (void)kept;
    (void)la_inputs(s, x, x_token, c->count, c->f0, c->f1, y, LA_ROW);
}
#endif

/* The inputs of a chunk for one head, in place or made into y, where LA_ROW is their row. */
LINATTN__INLINE la_rows la_chunk_inputs(const linattn__span *s, const la_chunk *c, const float *x,
                                        size_t x_token, float *y, float *kept)
{
    la_rows rows;
    rows.at = x + c->f0;
    rows.row = x_token;
    (void)kept;
#if LINATTN__HAS_FEATURES || LINATTN__HAS_UNIT
    if (s->params->source != LINATTN__DIRECT) {
        la_chunk_made(s, c, x, x_token, y, kept);
        rows.at = y;
        rows.row = LA_ROW;
    }
#else
    (void)s;
    (void)y;
#endif
    return rows;
}

/* Floats from token t0 of an operand, where a block of `count` begins, to what comes after it: more
   tokens, or where heads take turns those of another. 0: nothing. */
LINATTN__INLINE ptrdiff_t la_beyond(const linattn__span *s, size_t t0, size_t count, size_t token,
                                    size_t head)
{
    if (s->n - t0 >= 2 * count) return (ptrdiff_t)(count * token);
    if (!s->turns) return 0;
    return s->next_head * (ptrdiff_t)head +
           ((ptrdiff_t)s->next_token - (ptrdiff_t)t0) * (ptrdiff_t)token;
}

/* One chunk of features: makes them, then takes run after run. */
LA_WITHIN void la_block_chunk(const linattn__span *s, la_scratch *w, la_tile *a, size_t t0,
                              size_t g0, int keep, int own, const int keys)
{
    const int exponents = keys && LINATTN__IS_EXP(s->params->map);
    const float *q = s->q + g0 * s->q_head + t0 * s->q_token;
    const size_t count = a->count;
    const int ahead = LA_BLOCK > 1 && s->params->source == LINATTN__DIRECT && !a->spread;
    la_rows queries;
    la_chunk c;
    size_t g;
    c.t0 = t0;
    c.count = count;
    c.f0 = a->f0;
    c.f1 = a->f1;
    c.first = a->first;
    c.last = a->last;
    c.scores = NULL;
    c.own = own;
    c.k.at = q;
    c.k.row = 0;
    c.k_ahead = ahead && keys ? la_beyond(s, t0, count, s->k_token, s->k_head) : 0;
    c.q_ahead = ahead ? la_beyond(s, t0, count, s->q_token, s->group * s->q_head) : 0;
    if (keys)
        c.k =
            la_chunk_inputs(s, &c, s->k + t0 * s->k_token, s->k_token, w->k, w->k + count * LA_ROW);
    for (g = a->heads; g-- > 0;)
        queries = la_chunk_inputs(s, &c, q + g * s->q_head, s->q_token, w->q + g * count * LA_ROW,
                                  w->q + a->heads * count * LA_ROW + g * count * la_kept_signs(s));
    for (c.t = 0; c.t < count; c.t = c.end) {
        c.end = exponents ? LA_OF(s, run)(s, c.f0, c.f1, &c.k, c.t, count) : count;
        la_block_run(s, w, &c, a, &queries, g0, keep, keys);
    }
}

/* Reads out `count` tokens from t0 for query heads [g0, g0 + heads) of the group, and with keys
   adds each token to the state before its query. count * heads <= LA_QUERIES; z and S keep the
   sums only where `keep` says so, which is once all query heads have seen the old ones. */
LA_ONCE void la_block(const linattn__span *s, la_scratch *w, size_t t0, size_t count, size_t g0,
                      size_t heads, int keep, int own, const int keys)
{
    const size_t step = linattn__chunk(s->m);
    la_tile a;
    size_t g, f;
    LINATTN_ASSERT(count * heads <= LA_QUERIES);
    a.span = s;
    a.k = w->k;
    a.q = w->q;
    a.by = w->scale;
    a.lowers = 0;
    a.v = keys ? s->v + t0 * s->v_token : NULL;
    a.out = s->out + g0 * s->out_head + t0 * s->out_token;
    a.count = count;
    a.heads = heads;
    a.keep = keep;
    a.positive_zeros = 0;
    a.ahead = LINATTN__FETCHES(s) && count > 1 && (s->turns || s->n - t0 >= 2 * count);
    a.spread =
        a.ahead && (s->params->source != LINATTN__DIRECT || (!keys && s->d > 32 && s->d <= s->dv));
    a.q_in = s->q + g0 * s->q_head + t0 * s->q_token;
    a.next_q = a.q_in + la_beyond(s, t0, count, s->q_token, s->group * s->q_head);
    a.next_out = a.out + la_beyond(s, t0, count, s->out_token, s->group * s->out_head);
    a.next_k = a.next_v = NULL;
    if (keys) {
        a.next_k = s->k + t0 * s->k_token + la_beyond(s, t0, count, s->k_token, s->k_head);
        a.next_v = a.v + la_beyond(s, t0, count, s->v_token, s->v_head);
    }
    linattn__zeros(w->den, count * heads * 16);
    if (LINATTN__IS_SIGNED(s->params->map)) linattn__zeros(w->lost, count * heads * 16);
    for (f = 0; f < s->m; f += step) {
        a.f0 = f;
        a.f1 = s->m - f < step ? s->m : f + step;
        a.first = f == 0;
        a.last = a.f1 == s->m;
        la_block_chunk(s, w, &a, t0, g0, keep, own, keys);
    }
    for (g = 0; g < heads && !la_summed_factor(s->params, 0); g++)
        LA_OF(s, end_rows)(s, w->power + g * count, a.out + g * s->out_head, count);
}

static LINATTN__NOINLINE void la_query_block(const linattn__span *s, la_scratch *w, size_t t0,
                                             size_t count, size_t g, int own)
{
    w->q = w->k + LA_BLOCK * LA_ROW;
    la_block(s, w, t0, count, g, 1, 0, own, 0);
}

/* At most so many tokens of a block: few where rows, `token` floats apart, take the places of one
   another in L2, which else drops what was fetched before it is used. */
LINATTN__INLINE size_t la_fewer(const linattn__span *s, size_t token, size_t few, size_t most)
{
    const int crowded = LA_W > 1 && LINATTN__FETCHES(s) && token % LINATTN__CROWDED == 0 &&
                        linattn__contended(); /* scalar blocks may be of one token already */
    return crowded && few < most ? few : most;
}

static LINATTN__NOINLINE void la_query(const linattn__span *s)
{
    const size_t most = la_fewer(s, s->q_token, LA_BLOCK / 4, la_most(s));
    LINATTN__LINED la_scratch w;
    size_t t, g;
    for (g = 0; g < s->group; g++)
        for (t = 0; t < s->n; t += most)
            la_query_block(s, &w, t, s->n - t < most ? s->n - t : most, g, 0);
}

/* A masked token adds nothing: it only queries, but counts for the norm length. One by one, so that
   a program which does not call linattn_query has no other tiles for it. */
LINATTN__COLD static LINATTN__NOINLINE void la_masked_tokens(const linattn__span *s, la_scratch *w,
                                                             size_t t0, size_t count)
{
    linattn__span one;
    size_t t;
#if LINATTN__HAS_FEATURES
    const int blocks = s->params->source != LINATTN__DIRECT;
    size_t g;
    for (g = 0; blocks && g < s->group; g++) la_query_block(s, w, t0, count, g, 1);
    if (blocks) return;
#endif
    (void)w;
    for (t = t0; t < t0 + count; t++) {
        one = *s;
        one.k = NULL;
        one.q += t * s->q_token;
        one.out += t * s->out_token;
        one.n = one.heads = 1;
        one.seen += t + 1;
        LA_OF(s, step)(&one);
    }
}

LINATTN__SMALL static void la_causal(const linattn__span *s)
{
    LINATTN__LINED la_scratch w;
    /* Keys and queries have half of scratch each; or the queries of a group all that its few keys
       leave. Tokens come as tiles divide them: two where sixteen query heads share a key. */
    const size_t most_alone = la_most(s);
    const int alone = s->group == 1 || most_alone < LA_BLOCK;
    const size_t rows = alone ? most_alone : LA_QUERIES;
    const size_t chunk = s->group < rows ? s->group : rows;
    size_t most = alone ? rows / chunk : 2 * LA_BLOCK / (chunk + 1), t, g, count;
    const size_t height = alone ? 6 : most > 3 ? 4 : 2;
    if (most > height) most -= most % height;
    most = la_fewer(s, s->k_token, LA_BLOCK / 4, most);
    for (t = 0; t < s->n; t += count) {
        int masked;
        count = la_alike(s, t, most, &masked);
        if (masked) {
            la_masked_tokens(s, &w, t, count);
            continue;
        }
        w.q = w.k + (alone ? LA_BLOCK : count) * LA_ROW;
        /* more heads than a block holds come in chunks, and then count is 1 */
        for (g = 0; g < s->group; g += chunk) {
            const size_t heads = s->group - g < chunk ? s->group - g : chunk;
            la_block(s, &w, t, count, g, heads, g + heads == s->group, 1, 1);
        }
    }
    la_clear_padding(s);
}
#endif
#endif

/* ---- Tiles of products ----------------------------------------------------------------------- */

#if LINATTN__ISA != LINATTN__ISA_AVX512
/* a * b + c where m, else c. */
LINATTN__INLINE la_vec la_fma_where(la_mask m, la_vec a, la_vec b, la_vec c)
{
    return la_select(m, la_fma(a, b, c), c);
}
#endif

/* c[r][j] += sum over t of a[t][r] b[t][j]: MR rows, NR vectors, `count` terms in order; strides
   in floats. The tile of update (a = phi(k), b = v, c = S) and of exact attention (a = v, b =
   weights, c = outputs). With `masked`, lanes leave out the terms whose b is -1 (or NaN: what they
   come to is NaN in any case). With `copies`, b is left packed at x->copy. */
LINATTN__INLINE void la_outer_tile(const linattn__outer *x, size_t r0, const int masked,
                                   const int copies, const size_t MR, const size_t NR)
{
    const float *a = x->a + r0, *b = x->b;
    float *copy = x->copy;
    float *c = x->c + r0 * x->c_row;
    la_vec acc[LA_UPDATE_ROWS * LA_EXACT_VECS];
    size_t t, r, j;
    LINATTN__UNROLL for (r = 0; r < MR; r++) LINATTN__UNROLL for (j = 0; j < NR; j++)
        acc[r * NR + j] = la_load(c + r * x->c_row + j * x->c_vec);
    for (t = 0; t < x->count; t++, a += x->a_row, b += x->b_row) {
        la_vec y[LA_EXACT_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) y[j] = la_load(b + j * LA_W);
        if (copies) {
            LINATTN__UNROLL for (j = 0; j < NR; j++) la_store(copy + j * LA_W, y[j]);
            copy += NR * LA_W;
        }
        LINATTN__UNROLL for (r = 0; r < MR; r++)
        {
            const la_vec ar = la_set1(a[r]);
            LINATTN__UNROLL for (j = 0; j < NR; j++)
            {
                const la_vec sum = acc[r * NR + j];
                if (masked)
                    acc[r * NR + j] = la_fma_where(la_gt(y[j], la_set1(-0.5f)), ar, y[j], sum);
                else
                    acc[r * NR + j] = la_fma_hot(ar, y[j], sum);
            }
        }
    }
    LINATTN__UNROLL for (r = 0; r < MR; r++) LINATTN__UNROLL for (j = 0; j < NR; j++)
        la_store(c + r * x->c_row + j * x->c_vec, acc[r * NR + j]);
}

/* From row r on; what is left goes two rows at a time, where these are worth their code. What comes
   after b is fetched by the way, some rows for each tile: many at once would keep loads waiting. */
LINATTN__INLINE void la_outer(const linattn__outer *x, size_t r, const int masked, const size_t NR)
{
    const size_t MR = NR == 1 && !masked ? LA_UPDATE_TALL : LA_UPDATE_ROWS;
    const size_t tiles = (x->rows - r) / MR;
    const float *ahead = NULL;
    size_t fetches = 0, i;
    if (NR == LA_UPDATE_VECS && !masked && LA_W > 1 && x->fetches && tiles) {
        fetches = x->fetches / tiles + 1;
        ahead = x->ahead;
    }
    for (; x->rows - r >= MR; r += MR) {
        for (i = 0; i < fetches; i++) {
            size_t j;
            for (j = 0; j < NR * LA_W; j += 16) LINATTN__FETCH(ahead + j);
            ahead += x->ahead_row;
        }
        la_outer_tile(x, r, masked, 0, MR, NR);
    }
    for (; LA_UPDATE_ROWS > 2 && !masked && x->rows - r >= 2; r += 2)
        la_outer_tile(x, r, masked, 0, 2, NR);
    for (; r < x->rows; r++) la_outer_tile(x, r, masked, 0, 1, NR);
}

LINATTN__UNUSED static LINATTN__NOINLINE void la_outer_wide(const linattn__outer *x, size_t r)
{
    la_outer(x, r, 0, LA_UPDATE_VECS);
}

LINATTN__UNUSED static LINATTN__NOINLINE void la_outer_single(const linattn__outer *x, size_t r)
{
    la_outer(x, r, 0, 1);
}

#if LINATTN__HAS_PREFILL
/* ---- Sums: update ---------------------------------------------------------------------------- */

/* phi(k) of NF vectors of a run's features from f into scratch, which may hold the inputs, and z
   with them. */
LINATTN__INLINE void la_keys_vectors(const linattn__span *s, float *phi, const la_chunk *c,
                                     size_t f, const int map, const size_t NF)
{
    const linattn__params local = *s->params, *p = &local; /* which no store can change */
    const size_t k_row = c->k.row, end = c->end;
    const float *k = c->k.at + c->t * k_row + (f - c->f0);
    const int lanes = NF > 1 ? LA_W : la_lanes_left(c->f1, f);
    la_vec z[LA_STAGE_VECS], low[LA_STAGE_VECS], e[LA_STAGE_VECS];
    size_t t, j;
    phi += c->t * LA_PART_ROW + (f - c->f0);
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        z[j] = la_load(s->z + f + j * LA_W);
        low[j] = la_load(s->e + f + j * LA_W);
        e[j] = la_key_exponent(low[j]);
    }
    for (t = c->t; t < end; t++, k += k_row, phi += LA_PART_ROW) {
        LINATTN__UNROLL for (j = 0; j < NF; j++)
        {
            const la_vec y = la_phi_key(p, k + j * LA_W, lanes, e[j], map);
            la_store(phi + j * LA_W, y);
            z[j] = la_add_key(z[j], y, &low[j], map);
        }
        for (j = 0; LA_W > 1 && j < NF * LA_W; j += 16) LINATTN__FETCH(k + c->k_ahead + j);
    }
    LINATTN__UNROLL for (j = 0; j < NF; j++)
    {
        la_store(s->z + f + j * LA_W, z[j]);
        if (LINATTN__IS_SIGNED(map)) la_store(s->e + f + j * LA_W, low[j]);
    }
}

/* Features from f, vector by vector. */
static LINATTN__NOINLINE void la_keys_rest(const linattn__span *s, float *phi, const la_chunk *c,
                                           size_t f)
{
    for (; f < c->f1; f += LA_W) la_keys_vectors(s, phi, c, f, s->params->map, 1);
}

/* The maps as in la_stage. */
static LINATTN__NOINLINE void la_keys(const linattn__span *s, float *phi, const la_chunk *c)
{
    const size_t step = LA_STAGE_VECS * LA_W;
    size_t f = c->f0;
#if LA_CONSTANTS
    const size_t end = f + (c->f1 - f) / step * step;
    switch (s->params->map) {
    case LINATTN_MAP_IDENTITY: break;
    case LINATTN_MAP_ELU1:
        for (; f < end; f += step) la_keys_vectors(s, phi, c, f, LINATTN_MAP_ELU1, LA_STAGE_VECS);
        break;
    case LINATTN_MAP_EXP:
        for (; f < end; f += step) la_keys_vectors(s, phi, c, f, LINATTN_MAP_EXP, LA_STAGE_VECS);
        break;
    default:
        for (; f < end; f += step) la_keys_vectors(s, phi, c, f, LINATTN_MAP_RELU, LA_STAGE_VECS);
        break;
    }
#else
    (void)step;
#endif
    if (c->f1 - f <= 8 && la_half_filled(c->f1))
        LA_COMMON(keys_rest)(s, phi, c, f);
    else
        la_keys_rest(s, phi, c, f);
}

/* The `vectors` of columns from u, LA_UPDATE_VECS or one. Values are read once for each tile of
   rows: in place, or packed into v, as in place they may end in a partial vector, lie across cache
   lines, or share a few L1 sets (rows a multiple of 512 bytes apart). The first wide tile packs
   them beside its arithmetic. */
LINATTN__INLINE void la_update_columns(const linattn__span *s, linattn__outer *x, float *v,
                                       const la_chunk *c, size_t u, size_t vectors)
{
    const size_t line = LA_W * sizeof(float) - 1, width = vectors * LA_W;
    const int whole = u * LA_W + width <= s->dv;
    size_t r = 0;
    x->b = s->v + (c->t0 + c->t) * s->v_token + u * LA_W;
    x->b_row = s->v_token;
    x->ahead = x->b + c->v_ahead;
    if (LA_W > 1 && (!whole || (((uintptr_t)x->b | s->v_token * sizeof(float)) & line) ||
                     s->v_token % 128 == 0)) {
        if (whole && vectors == LA_UPDATE_VECS && x->rows >= LA_UPDATE_ROWS) {
            la_outer_tile(x, 0, 0, 1, LA_UPDATE_ROWS, LA_UPDATE_VECS);
            r = LA_UPDATE_ROWS;
        } else {
            la_edge_rows(s, v, width, x->b, s->v_token, x->count, u, width);
        }
        x->b = v;
        x->b_row = width;
    }
    if (vectors == 1)
        la_outer_single(x, r);
    else
        la_outer_wide(x, r);
}

/* Columns [begin, end), of which the first one begins a vector. */
static LINATTN__NOINLINE void la_update_vectors(const linattn__span *s, const float *phi,
                                                const la_chunk *c, size_t begin, size_t end)
{
    const size_t last = (end + LA_W - 1) / LA_W;
    size_t u = begin / LA_W;
    float v[LA_PART_TOKENS * LA_UPDATE_VECS * LA_W];
    linattn__outer x;
    size_t vectors;
    x.count = c->end - c->t;
    x.rows = c->f1 - c->f0;
    x.a = phi + c->t * LA_PART_ROW;
    x.a_row = LA_PART_ROW;
    x.copy = v;
    x.c_row = 16;
    x.c_vec = LA_W == 16 ? 16 * s->m : LA_W;
    x.ahead_row = s->v_token;
    x.fetches = LA_W > 1 && c->v_ahead ? x.count : 0;
    for (; u < last; u += vectors) {
        vectors = last - u >= LA_UPDATE_VECS ? LA_UPDATE_VECS : 1;
        x.c = la_column(s, u) + c->f0 * 16;
        la_update_columns(s, &x, v, c, u, vectors);
    }
}

#if LA_WALK
/* Where both signs of projected features are this job's, they are made together, half a part of
   each: how many. */
LINATTN__INLINE size_t la_part_signs(const linattn__span *s)
{
#if LINATTN__HAS_FEATURES
    if (LA_BLOCK > 1 && s->row_begin == 0 && s->row_end == s->m) return s->params->signs;
#endif
    (void)s;
    return 0;
}

/* `count` columns, few of those of a vector: features lie in its lanes instead. */
static LINATTN__NOINLINE void la_update_few(const linattn__span *s, const float *phi,
                                            const la_chunk *c, size_t column, size_t count)
{
    float sums[4 * LA_PART_ROW];
    float *const rows = la_column(s, column / LA_W) + c->f0 * 16;
    const size_t lanes = LA_LANES(s), wide = (LINATTN__BOTH ? 2 : LA_UPDATE_VECS) * lanes;
    const size_t features = c->f1 - c->f0;
    size_t step, f, i;
    linattn__outer x;
    x.count = c->end - c->t;
    x.rows = count;
    x.a = s->v + (c->t0 + c->t) * s->v_token + column;
    x.a_row = s->v_token;
    x.b = phi + c->t * LA_PART_ROW;
    x.b_row = x.c_row = LA_PART_ROW;
    x.c = sums;
    x.c_vec = lanes;
    x.fetches = 0;
    linattn__zeros(sums, count * LA_PART_ROW); /* lanes of no feature are computed with, too */
    for (i = 0; i < count; i++)
        for (f = 0; f < features; f++) sums[i * LA_PART_ROW + f] = rows[f * 16 + i];
    for (f = 0; f < features; f += step, x.b += step, x.c += step) {
        step = features - f < wide ? lanes : wide;
        if (step == wide)
            LA_OF(s, outer_wide)(&x, 0);
        else /* of half a vector la_keys may have left the rest out */
            LA_HALF(s, outer_single, features - f <= 8)(&x, 0);
    }
    for (i = 0; i < count; i++)
        for (f = 0; f < features; f++) rows[f * 16 + i] = sums[i * LA_PART_ROW + f];
}

/* S += phi(K)^T V in register tiles, for one run of tokens of a chunk. What is left over of the
   columns would take a whole vector for each feature. */
LA_WITHIN void la_update_run(const linattn__span *s, const float *phi, const la_chunk *c)
{
    const size_t lanes = LA_LANES(s), rest = s->column_end & (lanes - 1);
    const size_t few = rest <= lanes / 4 ? rest : 0;
    const size_t half = LA_WIDEST(s) && rest - 1 < 8 && !few;
    const size_t whole = s->column_end - (few + half > 0 ? rest : 0);
    LA_OF(s, update_vectors)(s, phi, c, s->column_begin, whole);
    if (few) la_update_few(s, phi, c, whole, few);
    if (half) LA_HALF(s, update_vectors, 1)(s, phi, c, whole, s->column_end);
}

static LINATTN__NOINLINE void la_update_block(const linattn__span *s, size_t t0, size_t count)
{
    const int exponents = LINATTN__IS_EXP(s->params->map);
    const size_t signs = la_part_signs(s), end = signs ? signs : s->row_end;
    const size_t part = signs ? LA_PART / 2 : LA_PART, keys = t0 * s->k_token;
    /* of the last part, or little would be left; what is made into scratch needs room beside it */
    const size_t most = s->params->source == LINATTN__DIRECT ? LA_PART_ROW : part;
    LINATTN__LINED float scratch[LA_PART_TOKENS * LA_PART_ROW];
    la_chunk c;
    size_t f, step;
    c.t0 = t0;
    c.count = count;
    for (f = s->row_begin; f < end; f += step) {
        float *phi = scratch;
        step = end - f <= most ? end - f : part;
        c.f0 = f;
        c.f1 = f + step;
        c.k.at = scratch;
        c.k.row = LA_PART_ROW;
#if LINATTN__HAS_FEATURES
        if (signs)
            la_project(s, s->k + keys, s->k_token, count, f, c.f1, scratch, LA_PART_ROW,
                       scratch + part, LA_PART_ROW);
#endif
        if (!signs)
            c.k = la_inputs(s, s->k + keys, s->k_token, count, f, c.f1, scratch, LA_PART_ROW);
        c.k_ahead = c.v_ahead = 0;
        if (LA_BLOCK > 1 && LINATTN__FETCHES(s) && s->params->source == LINATTN__DIRECT) {
            c.k_ahead = la_beyond(s, t0, count, s->k_token, s->k_head);
            if (f == s->row_begin) c.v_ahead = la_beyond(s, t0, count, s->v_token, s->v_head);
        }
        for (;;) {
            for (c.t = 0; c.t < count; c.t = c.end) {
                c.end = exponents ? LA_OF(s, run)(s, c.f0, c.f1, &c.k, c.t, count) : count;
                LA_OF(s, keys)(s, phi, &c);
                la_update_run(s, phi, &c);
            }
            if (c.f0 >= signs) break;
            c.f0 += signs;
            c.f1 += signs;
            c.k.at += part;
            phi += part;
        }
    }
}

static void la_update(const linattn__span *s)
{
    const size_t most = la_fewer(s, s->k_token, LA_PART_TOKENS * 3 / 8, LA_PART_TOKENS);
    size_t t, count;
    for (t = 0; t < s->n; t += count) {
        int masked;
        count = la_alike(s, t, most, &masked);
        if (!masked) la_update_block(s, t, count);
    }
    la_clear_padding(s);
}
#endif
#endif

/* ---- Sums: merge ----------------------------------------------------------------------------- */

/* to = a + b, each of n floats, a multiple of 16. */
static LINATTN__NOINLINE void la_sum_of(float *to, const float *a, const float *b, size_t n)
{
    size_t i;
    for (i = 0; i < n; i += LA_W) la_store(to + i, la_add(la_load(a + i), la_load(b + i)));
}

#if LA_COLD
LINATTN__INLINE void la_merge_row(float *dst, const float *src, const float *shrink_dst,
                                  const float *shrink_src)
{
    size_t c;
    for (c = 0; c < 16; c += LA_W)
        la_store(dst + c, la_add(la_rescale(la_load(dst + c), shrink_dst),
                                 la_rescale(la_load(src + c), shrink_src)));
}

/* One head: dst += src, the exponents of both aligned to the larger one first. */
LINATTN__COLD static void la_merge(const linattn__span *dst, const linattn__span *src)
{
    const size_t m = dst->m, panels = (dst->dv + 15) / 16;
    size_t f, i, c;
    if (!LINATTN__IS_EXP(dst->params->map)) {
        LA_HOT(dst, sum_of)(dst->s, dst->s, src->s, m * panels * 16);
        for (i = 0; i < m; i += LA_W) { /* z is padded to 16 */
            la_vec low = la_add(la_load(dst->e + i), la_load(src->e + i));
            const la_vec z =
                la_add_key(la_load(dst->z + i), la_load(src->z + i), &low, dst->params->map);
            la_store(dst->z + i, z);
            la_store(dst->e + i, low);
        }
        return;
    }
    for (f = 0; f < m; f++) {
        const float e = dst->e[f] > src->e[f] ? dst->e[f] : src->e[f];
        float shrink_dst[2], shrink_src[2];
        if (src->e[f] == -LINATTN__INF) continue; /* adds nothing */
        linattn__two_factors(dst->e[f] - e, shrink_dst);
        linattn__two_factors(src->e[f] - e, shrink_src);
        dst->z[f] = linattn__rescale(dst->z[f], shrink_dst);
        dst->z[f] = dst->z[f] + linattn__rescale(src->z[f], shrink_src);
        for (c = 0; c < panels; c++)
            la_merge_row(dst->s + (c * m + f) * 16, src->s + (c * m + f) * 16, shrink_dst,
                         shrink_src);
        dst->e[f] = e;
    }
}
#endif

#if LINATTN__HAS_HALF || LINATTN__HAS_RECURRENT
/* What a tile does with each row: write, then read out; read out, then write; write, read out, and
   read for the next token, without a decay, with one, or with a product more; only read. */
#define LA_WRITE 0
#define LA_BEFORE 1
#define LA_PLAIN_DELTA 2
#define LA_DELTA 3
#define LA_GENERAL 4
#define LA_READ 5
#endif

#if LINATTN__HAS_HALF
/* ---- Sums in 16 bits: tiles ------------------------------------------------------------------ */

#if LA_W == 16
#define LA_HALF_VECS 2
#elif LA_W > 1
#define LA_HALF_VECS LA_PANEL_VECS
#else
#define LA_HALF_VECS 1
#endif

#if LA_COLD
/* A tile, and what its rows take from a token: see la_rule_rows. It has the same number of columns
   everywhere: beyond the last panel it takes its first 16 again, to the same end. */
typedef struct la_half {
    float v[2 * LA_MOST], c[2 * LA_MOST], o[2 * LA_MOST], next[2 * LA_MOST];
    const float *had;                 /* o or next: what was read for this token */
    const float *value, *gain, *from; /* what v and o begin with; no value, no from: zeros */
    float *out;                       /* NULL: o stays here */
    const float *lead, *scale;        /* NULL: none */
    int goes_on, corrects, signs;     /* goes_on: v and o have begun */
    int kind, reads, bf;
    const float *k, *q, *p, *r, *a;
    size_t a_step;
    char *halves, *rows;      /* S in 16 bits; the same, or floats made of it */
    size_t half_panel, panel; /* bytes from one panel to the next; 0: there is one */
    size_t width, first, dv;  /* columns: how many, which, where they end */
    const char *ahead;        /* what to fetch meanwhile */
    size_t step;              /* bytes of it for each row */
} la_half;

/* How many columns a tile of the call has. */
#define LA_HALF_WIDTH(call) LA_EITHER(call, (size_t)32, (size_t)(LA_HALF_VECS * LA_W))

/* The tile of the columns from c on: rows from feature f of S. */
static LINATTN__NOINLINE void la_half_open(la_half *x, float *s, size_t m, size_t f, size_t c,
                                           size_t dv)
{
    size_t j;
    x->rows = x->halves = (char *)s + (c / 16 * 16 * m + f * 16 + c % 16) * sizeof(uint16_t);
    x->panel = x->half_panel = x->width > 16 && dv - c > 16 ? 32 * m : 0;
    x->ahead = x->rows;
    x->step = x->panel ? 64 : 32;
    x->first = c;
    x->dv = dv;
    x->had = x->next;
    for (j = 0; j < x->width; j++) x->next[j] = 0.0f;
}
#endif

/* The column of the vector at j, and how many of its lanes lie within dv. */
LINATTN__INLINE int la_half_lanes(const la_half *x, size_t j, size_t *column)
{
    *column = x->first + (x->panel ? j : j % 16);
    return *column < x->dv ? la_lanes_left(x->dv, *column) : 0;
}

/* Where vector j of a row lies. */
LINATTN__INLINE char *la_half_at(char *row, size_t panel, size_t j, const size_t bytes)
{
    return row + (j / LA_PANEL_VECS ? panel : 0) + j % LA_PANEL_VECS * LA_W * bytes;
}

/* One row of numbers of 16 bits; wide: made floats, but rounded as those. Scalar code, which has no
   room for floats, calls for each. */
LINATTN__INLINE void la_half_get(char *row, size_t panel, la_vec *y, const int bf, const int wide)
{
    size_t j;
    LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++)
    {
#if LA_W > 1
        char *const at = la_half_at(row, panel, j, wide ? sizeof(float) : sizeof(uint16_t));
        y[j] = wide ? la_load((const float *)(void *)at) : la_wide(at, bf);
#else
        (void)panel, (void)wide;
        linattn__read_half((float *)(void *)row, j, bf ? LINATTN_BF16 : LINATTN_F16, y + j);
#endif
    }
}

LINATTN__INLINE void la_half_put(char *row, size_t panel, la_vec *y, const int bf, const int wide)
{
    size_t j;
    LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++)
    {
#if LA_W > 1
        char *const at = la_half_at(row, panel, j, wide ? sizeof(float) : sizeof(uint16_t));
        float room[LA_W];
        if (bf) y[j] = la_round(y[j]);
        if (!bf || !wide) y[j] = la_narrow(wide ? (void *)room : at, y[j], bf);
        if (wide) la_store((float *)(void *)at, y[j]);
#else
        (void)panel, (void)wide;
        linattn__write_half((float *)(void *)row, j, bf ? LINATTN_BF16 : LINATTN_F16, y + j);
        linattn__read_half((float *)(void *)row, j, bf ? LINATTN_BF16 : LINATTN_F16, y + j);
#endif
    }
}

/* The same, as the compiler does not know what they are. */
LINATTN__INLINE void la_half_get_any(char *row, size_t panel, la_vec *y, int bf, const int wide)
{
    if (LA_W == 1 || wide)
        la_half_get(row, panel, y, bf, wide);
    else if (bf)
        la_half_get(row, panel, y, 1, wide);
    else
        la_half_get(row, panel, y, 0, wide);
}

LINATTN__INLINE void la_half_put_any(char *row, size_t panel, la_vec *y, int bf, const int wide)
{
    if (LA_W == 1)
        la_half_put(row, panel, y, bf, wide);
    else if (bf)
        la_half_put(row, panel, y, 1, wide);
    else
        la_half_put(row, panel, y, 0, wide);
}

/* A tile for one token: its rows are written, and read by the query and by the next key. */
LINATTN__INLINE void la_half_rows(la_half *x, size_t count, const int kind, const int bf,
                                  const int wide)
{
    const size_t bytes = wide ? sizeof(float) : sizeof(uint16_t), panel = x->panel;
    const size_t a_step = x->a_step, step = x->step;
    const int general = kind == LA_GENERAL, scales = kind != LA_PLAIN_DELTA, reads = x->reads;
    const float *const k = x->k, *const q = x->q, *const p = x->p, *const r = x->r, *a = x->a;
    const char *ahead = x->ahead;
    char *row = x->rows;
    la_vec v[LA_HALF_VECS], o[LA_HALF_VECS], next[LA_HALF_VECS], y[LA_HALF_VECS];
    size_t f, j;
    LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++)
    {
        v[j] = la_load(x->v + j * LA_W);
        o[j] = la_load(x->o + j * LA_W);
        next[j] = la_load(x->next + j * LA_W);
    }
    for (f = 0; f < count; f++, row += 16 * bytes, a += a_step, ahead += step) {
        const la_vec af = la_set1(*a), kf = la_set1(k[f]), qf = la_set1(q[f]);
        LINATTN__FETCH(ahead);
        la_half_get_any(row, panel, y, bf, wide);
        if (scales) {
            LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) y[j] = la_mul(af, y[j]);
        }
        if (general) {
            const la_vec pf = la_set1(p[f]);
            LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) y[j] =
                la_fma(pf, la_load(x->c + j * LA_W), y[j]);
        }
        LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) y[j] = la_fma(kf, v[j], y[j]);
        la_half_put_any(row, panel, y, bf, wide);
        LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) o[j] = la_fma(qf, y[j], o[j]);
        if (reads) {
            const la_vec rf = la_set1(r[f]);
            LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) next[j] = la_fma(rf, y[j], next[j]);
        }
    }
    LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++)
    {
        la_store(x->o + j * LA_W, o[j]);
        la_store(x->next + j * LA_W, next[j]);
    }
}

/* Its rows are only read. */
LINATTN__INLINE void la_half_read(la_half *x, size_t count, const int wide)
{
    const size_t bytes = wide ? sizeof(float) : sizeof(uint16_t), panel = x->panel;
    const int bf = x->bf;
    const char *ahead = x->ahead;
    la_vec o[LA_HALF_VECS];
    char *row = x->rows;
    size_t f, j;
    LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) o[j] = la_load(x->o + j * LA_W);
    for (f = 0; f < count; f++, row += 16 * bytes, ahead += x->step) {
        const la_vec qf = la_set1(x->q[f]);
        la_vec y[LA_HALF_VECS];
        LINATTN__FETCH(ahead);
        la_half_get_any(row, panel, y, bf, wide);
        LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) o[j] = la_fma(qf, y[j], o[j]);
    }
    LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++) la_store(x->o + j * LA_W, o[j]);
}

#if LA_W > 1
static LINATTN__NOINLINE void la_half_wide(la_half *x, size_t count)
{
    if (x->kind == LA_READ)
        la_half_read(x, count, 1);
    else
        la_half_rows(x, count, x->kind, x->bf, 1);
}
#endif

/* v and o of a token; what was read for it corrects its values, if need be. */
LINATTN__INLINE void la_half_begin(la_half *x)
{
    size_t j, column;
    for (j = 0; j < LA_HALF_VECS * LA_W; j += LA_W) {
        const int lanes = la_half_lanes(x, j, &column);
        const la_vec had = la_load(x->had + j);
        la_vec v = la_zero(), o = la_zero();
        if (x->value) v = la_load_part(x->value + column, lanes);
        if (x->from) o = la_load_part(x->from + column, lanes);
        if (x->corrects) v = la_sub(v, had);
        la_store(x->v + j, la_mul(la_set1(*x->gain), v));
        la_store(x->c + j, had);
        la_store(x->o + j, o);
        la_store(x->next + j, la_zero());
    }
}

/* Its output. */
LINATTN__INLINE void la_half_finish(const la_half *x)
{
    size_t j, column;
    for (j = 0; j < LA_HALF_VECS * LA_W; j += LA_W) {
        const int lanes = la_half_lanes(x, j, &column);
        la_vec o = la_load(x->o + j);
        if (x->lead) o = la_fma(la_set1(*x->lead), la_load(x->v + j), o);
        if (x->scale) o = la_mul(o, la_set1(*x->scale));
        if (x->signs) o = la_clamp(o);
        la_store_part(x->out + column, o, lanes);
    }
}

static LINATTN__NOINLINE void la_half_token(la_half *x, size_t count)
{
    if (!x->goes_on) la_half_begin(x);
#if LA_W > 1
    if (x->rows != x->halves)
        la_half_wide(x, count);
    else
#endif
        if (x->kind == LA_READ)
        la_half_read(x, count, 0);
    else if (LA_W == 1 || x->bf || x->kind == LA_GENERAL)
        la_half_rows(x, count, x->kind, x->bf, 0);
    else if (x->kind == LA_PLAIN_DELTA) /* f16 has less arithmetic, and is bound by branches */
        la_half_rows(x, count, LA_PLAIN_DELTA, 0, 0);
    else
        la_half_rows(x, count, LA_WRITE, 0, 0);
    if (x->out) la_half_finish(x);
}

#if LA_W > 1
/* Makes a tile of floats, or takes it back. */
static LINATTN__NOINLINE void la_half_copy(const la_half *x, size_t count, int back)
{
    const int bf = x->bf;
    char *half = x->halves, *row = x->rows;
    size_t f, j;
    for (f = 0; f < count; f++, half += 32, row += 64)
        LINATTN__UNROLL for (j = 0; j < LA_HALF_VECS; j++)
        {
            char *const from = la_half_at(half, x->half_panel, j, sizeof(uint16_t));
            float *const to = (float *)(void *)la_half_at(row, x->panel, j, sizeof(float));
            if (back)
                (void)la_narrow(from, la_load(to), bf);
            else
                la_store(to, la_wide(from, bf));
        }
}
#endif

#endif

/* ---- Sums: one token ------------------------------------------------------------------------- */

/* Does a step of this text make features, too? */
#define LA_MAKES (LINATTN__HAS_FEATURES && LA_BLOCK > 1)

#if LA_WALK && LA_MAKES
/* What is mapped of a key and a query, where that is made, and what la_kept_signs keeps of both, or
   of a query alone: by its least numbers of tokens no more than this. */
typedef struct la_made {
    float row[2 * LA_ROW];
    float kept[LA_BLOCK * LA_ROW / 12];
} la_made;
#endif

#if LA_WALK
/* A decode step, or the update or query of one token: everything a head needs in one go, with the
   bits of a block of one. */
typedef struct la_token {
    /* phi(k), and before it z of a past that the norm divides by; phi(q), or the weights that stand
       for it */
    float k[LA_STEP], q[LA_STEP];
    float den[16]; /* the denominator over 16 virtual lanes */
#if LINATTN__HAS_SIGNED
    float lost[16]; /* and what its rounding lost, for the identity */
#endif
    float top, scale, power; /* as in la_scratch */
#if LINATTN__HAS_UNIT
    linattn__params own[2]; /* with the roots of the key and of the query */
#endif
#if LA_MAKES
    la_made *made;
#endif
} la_token;

/* What the loops over a head need: in no order that compilers copy as vectors, as in the span. */
typedef struct la_head {
    const linattn__params *params;
#if LINATTN__HAS_UNIT
    const linattn__params *key_params; /* the same, but for the unit map */
#endif
    float *z;
    size_t m;
    float *e;
    size_t begin, end; /* columns */
    float *s;
    size_t dv;
    const float *key; /* no key, no query: NULL */
    uint64_t seen;
    const float *query, *value;
    int map, feature, plain;
    int clamps;          /* what is read out, times a factor that may be negative, saturates */
    int stream;          /* as the span's */
    float apart;         /* 1: rows are multiplied by it, see linattn__contended; or 0 */
    size_t wide;         /* vectors of columns at a time */
    size_t reach, tiles; /* as of la_fetch_next */
    float *out;
#if LINATTN__HAS_COMPENSATED
    int begun; /* outputs hold what was read so far */
#endif
#if LINATTN__HAS_HALF
    int element;        /* of S */
    float raise, lower; /* what its values are multiplied by, and its read-out */
    size_t ahead;       /* so many bytes further lies what to fetch */
#if LINATTN__BOTH
    int set;
#endif
#endif
} la_head;
#endif

#if LINATTN__HAS_COMPENSATED
#define LA_BEGUN(h) (h)->begun
#else
#define LA_BEGUN(h) 0
#endif

#if LINATTN__HAS_UNIT
#define LA_KEY_PARAMS(h) (h)->key_params
#else
#define LA_KEY_PARAMS(h) (h)->params
#endif

/* phi of a vector of the key and of the query. */
LINATTN__INLINE void la_step_phi(const la_head *h, size_t f, int lanes, la_vec e, float top,
                                 la_vec *k, la_vec *q, const int map, const int keys,
                                 const int queries)
{
    if (keys) *k = la_phi_key(LA_KEY_PARAMS(h), h->key + f, lanes, la_key_exponent(e), map);
    if (queries)
        *q = la_phi_query(h->params, h->query + f, lanes, h->feature ? la_zero() : e, top, map);
}

#if LA_CONSTANTS
/* The same of whole vectors of features from f0 on, of a query and where `keys` of a key, of a map
   that is known, under a norm that does not divide by z: in half the time. Returns where they
   end. */
LINATTN__INLINE size_t la_step_vectors(const la_head *h, la_token *w, size_t f0, size_t f1,
                                       la_vec *den, la_vec *lost, float top, const int map,
                                       const int keys)
{
    const linattn__params *const of_key = LA_KEY_PARAMS(h), *const of_query = h->params;
    const float *const key = h->key, *const query = h->query;
    float *const to_z = h->z, *const to_e = h->e;
    size_t f = f0;
    for (; f1 - f >= LA_W; f += LA_W) {
        const la_vec e = la_load(to_e + f);
        la_vec z = la_load(to_z + f), low = e, q;
        if (keys) {
            const la_vec k = la_phi_key(of_key, key + f, LA_W, la_key_exponent(e), map);
            z = la_add_key(z, k, &low, map);
            la_store(to_z + f, z);
            if (LINATTN__IS_SIGNED(map)) la_store(to_e + f, low);
            la_store(w->k + (f - f0), k);
        }
        q = la_phi_query(of_query, query + f, LA_W, e, top, map);
        la_store(w->q + (f - f0), la_weigh_query(q, z, low, den, lost, map, 0));
        la_turn(den);
        la_turn(lost);
    }
    return f;
}

/* The same, of any map. */
LINATTN__INLINE size_t la_step_whole(const la_head *h, la_token *w, size_t f0, size_t f1,
                                     la_vec *den, la_vec *lost, float top, const int keys)
{
    const int map = h->map;
    if (LINATTN__HAS_ELU1 && map == LINATTN_MAP_ELU1)
        return la_step_vectors(h, w, f0, f1, den, lost, top, LINATTN_MAP_ELU1, keys);
    if (LINATTN__IS_EXP(map))
        return la_step_vectors(h, w, f0, f1, den, lost, top, LINATTN_MAP_EXP, keys);
    if (LINATTN__IS_SIGNED(map))
        return la_step_vectors(h, w, f0, f1, den, lost, top, LINATTN_MAP_IDENTITY, keys);
    return la_step_vectors(h, w, f0, f1, den, lost, top, LINATTN_MAP_RELU, keys);
}
#endif

/* Maps features [f0, f1): z follows with a key, the denominator with a query. */
LINATTN__SHARED void la_step_map(const la_head *h, la_token *w, size_t f0, size_t f1)
{
    const int map = h->map, keys = h->key != NULL, queries = h->query != NULL;
    la_vec den[LA_PANEL_VECS], lost[LA_PANEL_VECS];
    float top = 0.0f;
    size_t f, j;
    if (LINATTN__IS_EXP(map) && queries && w->top > -LINATTN__INF) top = w->top;
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++)
    {
        den[j] = lost[j] = la_zero();
        if (f0 > 0) den[j] = la_load(w->den + j * LA_W);
#if LINATTN__HAS_SIGNED
        if (f0 > 0) lost[j] = la_load(w->lost + j * LA_W);
#endif
    }
    f = f0;
#if LA_CONSTANTS
    if (keys && queries && !h->feature)
        f = la_step_whole(h, w, f0, f1, den, lost, top, 1);
    else if (queries && !h->feature)
        f = la_step_whole(h, w, f0, f1, den, lost, top, 0);
#endif
    for (; f < f1; f += LA_W) {
        const int lanes = la_lanes_left(f1, f);
        const size_t slot = LA_W > 1 ? 0 : f % 16;
        const la_vec e = la_load(h->e + f);
        la_vec z = la_load(h->z + f), low = e, k = z, q = z;
#if LINATTN__HAS_COMPENSATED
        if (h->feature > 1) low = la_load(w->k + (f - f0));
#endif
        la_step_phi(h, f, lanes, e, top, &k, &q, map, keys, queries);
        if (keys) {
            la_store(w->k + (f - f0), k);
            z = la_add_key(z, k, &low, map);
            la_store(h->z + f, z);
            if (LINATTN__IS_SIGNED(map)) la_store(h->e + f, low);
        }
        if (queries) {
            q = la_weigh_query(q, z, low, den + slot, lost + slot, map, h->feature);
            la_store(w->q + (f - f0), q);
            la_turn(den);
            la_turn(lost);
        }
    }
    if (!queries) return;
    for (; LA_W > 1 && f % 16 != 0; f += LA_W) {
        la_turn(den);
        la_turn(lost);
    }
    if (h->plain && f1 == h->m) {
        w->scale = linattn__inverse(la_sum16(den));
        return;
    }
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++)
    {
        la_store(w->den + j * LA_W, den[j]);
#if LINATTN__HAS_SIGNED
        la_store(w->lost + j * LA_W, lost[j]);
#endif
    }
}

#if LINATTN__HAS_HALF && LA_COLD
/* All columns of this job of S in 16 bits. */
static LINATTN__NOINLINE void la_step_halves(const la_head *h, const la_token *w, size_t f0,
                                             size_t f1)
{
    const float one = 1.0f;
    const size_t end = h->end < h->dv ? h->end : h->dv;
    const float scale = w->scale * h->lower;
    size_t c;
    la_half x;
    x.a = &one;
    x.a_step = 0;
    x.reads = 0;
    x.bf = h->element == LINATTN_BF16;
    x.kind = h->key ? LA_PLAIN_DELTA : LA_READ;
    x.k = w->k;
    x.q = h->query ? w->q : w->k;
    x.value = h->key ? h->value : NULL;
    x.gain = &h->raise;
    x.out = h->query ? h->out : NULL;
    x.from = f0 > 0 ? x.out : NULL;
    x.lead = NULL;
    x.scale = f1 == h->m ? &scale : NULL;
    x.goes_on = x.corrects = x.signs = 0;
    x.width = LA_HALF_WIDTH(h);
    for (c = h->begin; c < end; c += x.width) {
        la_half_open(&x, h->s, h->m, f0, c, end);
        x.ahead = (const char *)((uintptr_t)x.ahead + h->ahead);
        LA_HOT(h, half_token)(&x, f1 - f0);
    }
}
#endif

#if LA_W > 1
/* Which of two fetches it is, gcc decides before a loop; clang does so at -O3 alone. */
#ifdef __clang__
#define LA_FETCHES_APART 1
#else
#define LA_FETCHES_APART 0
#endif

/* Fetches what is `reach` floats behind a row into L1, or that row of the next `tiles` columns of
   its tile, or of the next head's, into L2. */
LINATTN__INLINE void la_fetch_next(const float *row, size_t m, size_t reach, int into_l1,
                                   size_t tiles, const size_t NR)
{
    size_t j;
    if (into_l1) {
        LINATTN__UNROLL for (j = 0; j < NR; j += LA_PANEL_VECS)
            LINATTN__FETCH_NEAR(row + la_offset(m, j) + reach);
        return;
    }
    LINATTN__ROLLED for (; tiles > 0; tiles--)
    {
        row += NR * LA_W * m;
        LINATTN__UNROLL for (j = 0; j < NR; j += LA_PANEL_VECS)
            LINATTN__FETCH(row + la_offset(m, j));
    }
}

/* `count` rows of NR vectors take the key, v, and are read by the query into o. fetches: 1, or 2:
   if states come from memory; 3: into L1; 4: of several tiles. apart: rows are multiplied by 1. */
LINATTN__INLINE void la_step_walk(const la_head *h, const la_token *w, float *row, size_t count,
                                  const la_vec *v, la_vec *o, const int keys, const int queries,
                                  const int fetches, const int apart, const size_t NR)
{
    const size_t m = h->m, reach = h->reach;
    const size_t tiles = LA_FETCHES_APART && fetches == 1 ? 1 : h->tiles;
    const int stream = h->stream;
    const int into_l1 = fetches == 3 || (reach && !(LA_FETCHES_APART && fetches != 2));
    const la_vec one = la_set1(apart ? h->apart : 1.0f);
    la_vec x[4];
    size_t f, j;
    for (f = 0; f < count; f++, row += 16) {
        if (fetches && (fetches != 2 || stream)) la_fetch_next(row, m, reach, into_l1, tiles, NR);
        LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_load(row + la_offset(m, j));
        if (apart) {
            LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_mul(one, x[j]);
        }
        if (keys) {
            const la_vec kf = la_set1(w->k[f]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_fma_hot(kf, v[j], x[j]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) la_store(row + la_offset(m, j), x[j]);
        }
        if (queries) {
            const la_vec qf = la_set1(w->q[f]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_fma_hot(qf, x[j], o[j]);
        }
    }
}

/* What is read of NR vectors of columns from u, with features up to f1. */
LINATTN__INLINE void la_step_end(const la_head *h, const la_token *w, size_t f1, size_t u,
                                 la_vec *o, int lanes, const size_t NR)
{
    size_t j;
    if (f1 == h->m) {
        LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_mul(o[j], la_set1(w->scale));
        if (h->clamps) LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_clamp(o[j]);
    }
    la_store_columns(h->out + u * LA_W, o, lanes, NR);
}

/* NR vectors of columns from u, of features [f0, f1). */
LINATTN__INLINE void la_step_tile(const la_head *h, const la_token *w, size_t f0, size_t f1,
                                  size_t u, const int keys, const int queries, const size_t NR)
{
    const int lanes = la_lanes_left(h->dv, (u + NR - 1) * LA_W);
    const size_t m = h->m, count = f1 - f0;
    float *row = h->s + (u / LA_PANEL_VECS) * 16 * m + (u % LA_PANEL_VECS) * LA_W + f0 * 16;
    la_vec v[4], o[4];
    const int begun = f0 > 0 || LA_BEGUN(h);
    const int few = NR < 4 && (!queries || NR * LA_W < 32); /* not worth two loops */
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NR; j++) v[j] = o[j] = la_zero();
    if (keys) la_load_columns(v, h->value + u * LA_W, lanes, NR);
    if (queries && begun) la_load_columns(o, h->out + u * LA_W, lanes, NR);
    if (few)
        la_step_walk(h, w, row, count, v, o, keys, queries, 2, 0, NR);
    else if (LA_W == 8 && keys && h->apart > 0.0f && h->stream)
        la_step_walk(h, w, row, count, v, o, keys, queries, 1, 1, NR);
    else if (LA_W == 8 && keys && h->apart > 0.0f)
        la_step_walk(h, w, row, count, v, o, keys, queries, 0, 1, NR);
    else if (LA_FETCHES_APART && h->stream && h->reach)
        la_step_walk(h, w, row, count, v, o, keys, queries, 3, 0, NR);
    else if (LA_FETCHES_APART && h->stream && h->tiles > 1)
        la_step_walk(h, w, row, count, v, o, keys, queries, 4, 0, NR);
    else if (h->stream)
        la_step_walk(h, w, row, count, v, o, keys, queries, 1, 0, NR);
    else
        la_step_walk(h, w, row, count, v, o, keys, queries, 0, 0, NR);
    if (queries) la_step_end(h, w, f1, u, o, lanes, NR);
}

/* LA_LONE_VECS of them that are read and no more: of four each sum would wait for its last. */
LINATTN__INLINE void la_step_lone(const la_head *h, const la_token *w, size_t f0, size_t f1,
                                  size_t u)
{
    const int lanes = la_lanes_left(h->dv, (u + LA_LONE_VECS - 1) * LA_W);
    const size_t m = h->m;
    const float *row = h->s + u / LA_PANEL_VECS * 16 * m + f0 * 16, *q = w->q;
    const float *const end = q + (f1 - f0);
    la_vec o[LA_LONE_VECS];
    size_t j;
    LINATTN__UNROLL for (j = 0; j < LA_LONE_VECS; j++) o[j] = la_zero();
    if (f0 > 0 || LA_BEGUN(h)) la_load_columns(o, h->out + u * LA_W, lanes, LA_LONE_VECS);
    for (; q < end; q++, row += 16) {
        const la_vec qf = la_set1(*q);
        LINATTN__UNROLL for (j = 0; j < LA_LONE_VECS; j++) o[j] =
            la_fma_hot(qf, la_load(row + la_offset(m, j)), o[j]);
    }
    la_step_end(h, w, f1, u, o, lanes, LA_LONE_VECS);
}

/* All columns of this job. */
LINATTN__INLINE void la_step_rows(const la_head *h, const la_token *w, size_t f0, size_t f1,
                                  const int keys, const int queries)
{
    const size_t last = (h->end + LA_W - 1) / LA_W;
    const int narrow = LA_W == 16 && keys && queries && h->stream < 2 && linattn__halved();
    size_t u = h->begin / LA_W, end;
#if LINATTN__HAS_HALF
    if (h->element) {
        la_step_halves(h, w, f0, f1);
        return;
    }
#endif
    do {
        end = last - u < h->wide ? last : u + h->wide;
        for (; !keys && !h->stream && end - u >= LA_LONE_VECS; u += LA_LONE_VECS)
            la_step_lone(h, w, f0, f1, u);
        for (; !narrow && end - u >= 4; u += 4) la_step_tile(h, w, f0, f1, u, keys, queries, 4);
        while (end - u >= 2) { /* narrow, all of them, else one: a loop that is none is smaller */
            la_step_tile(h, w, f0, f1, u, keys, queries, 2);
            u += 2;
            if (!narrow) break;
        }
        if (u < end) la_step_tile(h, w, f0, f1, u++, keys, queries, 1);
    } while (u < last);
}
#else
/* The same for scalar code: four columns at a time, in a row of S, whose columns beyond dv stay 0.
   */
static LINATTN__NOINLINE void la_step_rows(const la_head *h, const la_token *w, size_t f0,
                                           size_t f1, int keys, int queries)
{
    size_t u, f, j;
#if LINATTN__HAS_HALF
    if (h->element) {
        la_step_halves(h, w, f0, f1);
        return;
    }
#endif
    for (u = h->begin; u < h->end; u += 4) {
        const size_t columns = h->end - u < 4 ? h->end - u : 4;
        float *row = h->s + (u / 16 * h->m + f0) * 16 + u % 16;
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f}, o[4] = {0.0f, 0.0f, 0.0f, 0.0f}, x[4];
        for (j = 0; j < columns; j++) {
            if (keys) v[j] = h->value[u + j];
            if (queries && (f0 > 0 || LA_BEGUN(h))) o[j] = h->out[u + j];
        }
        for (f = 0; f < f1 - f0; f++, row += 16) {
            LINATTN__UNROLL for (j = 0; j < 4; j++) x[j] = row[j];
            if (keys) {
                const float by = w->k[f];
                LINATTN__UNROLL for (j = 0; j < 4; j++)
                {
                    x[j] = la_fma(by, v[j], x[j]);
                    row[j] = x[j];
                }
            }
            if (queries) {
                const float by = w->q[f];
                LINATTN__UNROLL for (j = 0; j < 4; j++) o[j] = la_fma(by, x[j], o[j]);
            }
        }
        for (j = 0; queries && j < columns; j++)
            h->out[u + j] = f1 == h->m ? o[j] * w->scale : o[j];
    }
}
#endif

#if LINATTN__HAS_EXP
/* Exponents and peaks of features [f0, f1), a chunk. */
static LINATTN__NOINLINE void la_step_chunk(const linattn__span *s, const la_head *h, la_token *w,
                                            size_t f0, size_t f1)
{
    if (h->key) la_settle(s, f0, f1, h->key + f0);
    if (h->query) {
        float peak;
        la_peak(s, h->query + f0, 0, 1, f0, f1, &peak);
        la_raise(s, &w->top, &peak, f0 == 0, w->den, h->out);
    }
}
#endif

/* The output factor, once all features are mapped. */
static LINATTN__NOINLINE void la_step_finish(const linattn__span *s, const la_head *h, la_token *w)
{
#if LINATTN__HAS_SIGNED
    const float *lost = w->lost;
#else
    const float *lost = NULL;
#endif
    la_factor(s, h->query, w->den, lost, &w->top, h->seen, &w->scale, &w->power);
}

#if LINATTN__HAS_COMPENSATED
/* Rows that are only read. */
static LINATTN__NOINLINE void la_step_read(const la_head *h, const la_token *w, size_t f0,
                                           size_t f1)
{
    la_step_rows(h, w, f0, f1, 0, 1);
}

/* Reads features [f0, f1) out of the past, too. */
LINATTN__COLD static LINATTN__NOINLINE void la_step_past(const linattn__span *s, const la_head *h,
                                                         la_token *w, size_t f0, size_t f1)
{
    la_head past = *h;
    past.s += s->past;
    past.begun = 1;
    la_past_weights(s, w->q, w->den, 1, f0, f1);
    if (f1 == h->m) la_step_finish(s, h, w);
    la_step_read(&past, w, f0, f1);
}
#endif

/* Columns beyond dv stay 0, whatever the key was. */
LINATTN__INLINE void la_step_padding(const linattn__span *s, const la_head *h, size_t f0, size_t f1)
{
    for (; h->dv % 16 != 0 && f0 < f1; f0 += LA_W) {
        const la_vec z = la_load(h->z + f0);
        if (la_any(la_unordered(la_sub(z, z)))) la_clear_padding(s);
    }
}

/* Features [f0, f1) of one token of one key/value head and one query head. */
LINATTN__INLINE void la_step_part(const linattn__span *s, const la_head *h, la_token *w, size_t f0,
                                  size_t f1, const int keys, const int queries)
{
    la_step_map(h, w, f0, f1);
    if (queries && LINATTN__PAST(s))
        w->scale = 1.0f;
    else if (queries && f1 == h->m && !h->plain)
        la_step_finish(s, h, w);
#if LINATTN__HAS_COMPENSATED && LA_W > 1
    if (!keys)
        la_step_read(h, w, f0, f1);
    else
#endif
        la_step_rows(h, w, f0, f1, keys, queries);
#if LINATTN__HAS_COMPENSATED
    if (queries && s->past) la_step_past(s, h, w, f0, f1);
#endif
    if (LA_W > 1 && keys) la_step_padding(s, h, f0, f1);
}

#if LA_W > 1
static LINATTN__NOINLINE void la_step_both(const linattn__span *s, const la_head *h, la_token *w,
                                           size_t f0, size_t f1)
{
    la_step_part(s, h, w, f0, f1, 1, 1);
}

static LINATTN__NOINLINE void la_step_update(const linattn__span *s, const la_head *h, la_token *w,
                                             size_t f0, size_t f1)
{
    la_step_part(s, h, w, f0, f1, 1, 0);
}

static LINATTN__NOINLINE void la_step_query(const linattn__span *s, const la_head *h, la_token *w,
                                            size_t f0, size_t f1)
{
    la_step_part(s, h, w, f0, f1, 0, 1);
}
#endif

/* How many of `count` numbers are in vector j. */
LINATTN__INLINE int la_panel_lanes(size_t count, size_t j)
{
    return count < j * LA_W ? 0 : la_lanes_left(count, j * LA_W);
}

#if LA_W > 1 && LINATTN__HAS_PREFILL
/* Columns of two query heads of a token: a tile has enough sums that none waits for its last. */
#define LA_TWICE_VECS (LA_W == 16 ? 2 : 4)

/* This job's columns from c as far as a tile goes: they take the key if there is one, and are read
   by two queries. Where there is no second panel it is the first one once more. */
LINATTN__INLINE void la_twice_tile(const la_head *h, const la_token *w, size_t f0, size_t f1,
                                   size_t c, size_t out_head)
{
    const size_t m = h->m, count = f1 - f0, reach = h->reach, tiles = h->tiles;
    const size_t left = (h->end < h->dv ? h->end : h->dv) - c, more = left > 16 ? 16 : 0;
    const size_t panel = more * m;
    const float *const k = h->key ? w->k : NULL;
    const int stream = h->stream;
    float *row = h->s + c * m + f0 * 16, *const out = h->out + c;
    la_vec v[LA_TWICE_VECS], o[2 * LA_TWICE_VECS];
    size_t f, g, j;
    LINATTN__UNROLL for (j = 0; j < LA_TWICE_VECS; j++)
    {
        const size_t at = j / LA_PANEL_VECS * more + j % LA_PANEL_VECS * LA_W;
        const int lanes = la_panel_lanes(left, at / LA_W);
        v[j] = o[j] = o[LA_TWICE_VECS + j] = la_zero();
        if (k) v[j] = la_load_part(h->value + c + at, lanes);
        if (f0 > 0) o[j] = la_load_part(out + at, lanes);
        if (f0 > 0) o[LA_TWICE_VECS + j] = la_load_part(out + out_head + at, lanes);
    }
    for (f = 0; f < count; f++, row += 16) {
        la_vec x[LA_TWICE_VECS];
        if (stream) la_fetch_next(row, m, reach, reach != 0, tiles, LA_TWICE_VECS);
        LINATTN__UNROLL for (j = 0; j < LA_TWICE_VECS; j++) x[j] =
            la_load(row + j / LA_PANEL_VECS * panel + j % LA_PANEL_VECS * LA_W);
        if (k) {
            const la_vec kf = la_set1(k[f]);
            LINATTN__UNROLL for (j = 0; j < LA_TWICE_VECS; j++) x[j] = la_fma_hot(kf, v[j], x[j]);
            LINATTN__UNROLL for (j = 0; j < LA_TWICE_VECS; j++)
                la_store(row + j / LA_PANEL_VECS * panel + j % LA_PANEL_VECS * LA_W, x[j]);
        }
        LINATTN__UNROLL for (g = 0; g < 2; g++)
        {
            const la_vec qf = la_set1(w[g].q[f]);
            LINATTN__UNROLL for (j = 0; j < LA_TWICE_VECS; j++) o[LA_TWICE_VECS * g + j] =
                la_fma_hot(qf, x[j], o[LA_TWICE_VECS * g + j]);
        }
    }
    for (g = 0; g < 2; g++) {
        LINATTN__UNROLL for (j = 0; j < LA_TWICE_VECS; j++)
        {
            la_vec y = o[j];
            o[j] = o[LA_TWICE_VECS + j];
            if (f1 == m) y = la_mul(y, la_set1(w[g].scale));
            if (f1 == m && h->clamps) y = la_clamp(y);
            la_store_part(out + g * out_head + j * LA_W, y, la_panel_lanes(left, j));
        }
    }
}

/* Features [f0, f1) of one token of two query heads: S goes by once for both. */
static LINATTN__NOINLINE void la_step_twice(const linattn__span *s, la_head *h, la_token *w,
                                            size_t f0, size_t f1)
{
    const float *const key = h->key, *const query = h->query;
    size_t c, g;
    for (g = 0; g < 2; g++) {
        la_step_map(h, w + g, f0, f1);
        if (f1 == h->m && !h->plain) la_step_finish(s, h, w + g);
        h->key = NULL; /* z has it now */
        h->query = query + s->q_head;
    }
    h->key = key;
    h->query = query;
    for (c = h->begin; c < h->end; c += LA_TWICE_VECS * LA_W)
        la_twice_tile(h, w, f0, f1, c, s->out_head);
    if (key) la_step_padding(s, h, f0, f1);
}
#endif

#if LA_WALK && LA_MAKES
/* What the map takes for features [f0, f1) of a key and of a query, if there are: made for both at
   once, as what they are made with is large. h leads to where they were feature 0. */
LINATTN__COLD static LINATTN__NOINLINE void la_step_make(const linattn__span *s, la_head *h,
                                                         la_token *w, const float *key,
                                                         const float *query, size_t f0, size_t f1)
{
    const uintptr_t of_key = (uintptr_t)key, of_query = (uintptr_t)query;
    const int both = key && query, later = both && of_query < of_key;
    const uintptr_t apart = !both ? 0 : later ? of_key - of_query : of_query - of_key;
    const uintptr_t begin = f0 * sizeof(float);
    float *const first = w->made->row, *const second = first + (both ? LA_ROW : 0);
    la_chunk c;
    c.f0 = f0;
    c.f1 = f1;
    c.count = both ? 2 : 1;
    la_chunk_made(s, &c, key && !later ? key : query, apart / sizeof(float), first, w->made->kept);
    if (key) h->key = (const float *)((uintptr_t)(later ? second : first) - begin);
    if (query) h->query = (const float *)((uintptr_t)(later ? first : second) - begin);
}
#endif

#if LA_COLD
#if LINATTN__BOTH
#define LA_STEP_UPDATE(call) (call)->update[(call)->set]
#else
#define LA_STEP_UPDATE(call) la_step_update
#endif

/* In parts, as scratch is small, and chunks of exponents and of a past are given. */
LINATTN__INLINE void la_step_parts(const linattn__span *s, la_head *h, la_token *w)
{
    const size_t m = h->m, most = LA_W > 1 ? LA_STEP : m; /* a chunk is no more than a step */
    const int chunks = LINATTN__IS_EXP(h->map) || LINATTN__PAST(s);
    const size_t chunk = chunks ? linattn__chunk(m) : most;
#if LA_MAKES && LA_W > 1
    const int makes = !linattn__is_direct(s->params->source);
    const float *const key = h->key, *const query = h->query;
#endif
    size_t f0 = 0, f1, end = 0;
    do {
        if (LA_W > 1 || f0 == end) {
            end = m - f0 < chunk ? m : f0 + chunk;
#if LA_MAKES && LA_W > 1
            if (makes) la_step_make(s, h, w, key, query, f0, end);
#endif
#if LINATTN__HAS_EXP
            if (LINATTN__IS_EXP(h->map)) LA_HOT(s, step_chunk)(s, h, w, f0, end);
#endif
        }
        f1 = LA_W > 1 || end - f0 < LA_STEP ? end : f0 + LA_STEP;
#if LINATTN__HAS_COMPENSATED
        if (h->feature > 1) la_past_z(s, f0, linattn__round16(f1 - f0), w->k);
#endif
#if LA_W > 1
        if (!h->query)
            LA_STEP_UPDATE(s)(s, h, w, f0, f1);
        else if (h->key)
            LA_HOT(s, step_both)(s, h, w, f0, f1);
        else
            LA_HOT(s, step_query)(s, h, w, f0, f1);
#else
        la_step_part(s, h, w, f0, f1, h->key != NULL, h->query != NULL);
#endif
        f0 = f1;
    } while (f0 < m);
    if (LA_W == 1 && h->key && h->dv % 16 != 0) la_clear_padding(s);
    if (h->query && !h->plain && !h->clamps) la_end_rows(s, &w->power, h->out, 1);
#if LA_MAKES && LA_W > 1
    h->key = key;
    h->query = query;
#endif
}

#if LA_W > 1 && LINATTN__HAS_PREFILL
/* The same of two query heads. */
LINATTN__COLD static LINATTN__NOINLINE void la_step_two(const linattn__span *s, la_head *h,
                                                        la_token *w)
{
    const size_t m = h->m, chunk = LINATTN__IS_EXP(h->map) ? linattn__chunk(m) : LA_STEP;
    float *const out = h->out;
    size_t f0, f1;
    for (f0 = 0; f0 < m; f0 = f1) {
        f1 = m - f0 < chunk ? m : f0 + chunk;
#if LINATTN__HAS_EXP
        if (LINATTN__IS_EXP(h->map)) {
            const float *const key = h->key, *const query = h->query;
            LA_HOT(s, step_chunk)(s, h, w, f0, f1);
            h->key = NULL;
            h->query = query + s->q_head;
            h->out = out + s->out_head;
            LA_HOT(s, step_chunk)(s, h, w + 1, f0, f1);
            h->key = key;
            h->query = query;
            h->out = out;
        }
#endif
        LA_HOT(s, step_twice)(s, h, w, f0, f1);
    }
    if (h->plain || h->clamps) return;
    la_end_rows(s, &w[0].power, out, 1);
    la_end_rows(s, &w[1].power, out + s->out_head, 1);
}
#endif

#if LINATTN__HAS_UNIT
/* The unit map has a factor for each key and query. */
static LINATTN__NOINLINE void la_step_roots(const linattn__span *s, la_head *h, la_token *w)
{
    w->own[0] = w->own[1] = *s->params;
    if (h->key) la_unit_root(h->key, h->m, &w->own[0].root);
    if (h->query) la_unit_root(h->query, h->m, &w->own[1].root);
    h->key_params = w->own;
    h->params = w->own + 1;
}
#endif

/* Many query heads go by the tiles of query, but where nothing else needs these, as in a program
   that calls linattn_causal alone. */
#if LINATTN__HAS_PREFILL && (LINATTN__HAS_WINDOW || !defined(LINATTN_STATIC))
#define LA_TILED_STEP 1
#else
#define LA_TILED_STEP 0
#endif

#if LA_TILED_STEP
/* Are there enough of them? From four on, and with a key in multiples of four where S is large; of
   eight where the other way is two by two, and from eight on where there are few rows. */
LINATTN__INLINE int la_step_tiled(const linattn__span *s, const la_head *h, size_t count)
{
    const size_t most = LA_W > 1 ? 8 : 4;
    if (h->key) return count % most == 0 && s->head_floats > 8448; /* floats, those of (128,64) */
    return count >= most || (count >= 4 && s->head_floats >= 1024);
}
#endif

#if LA_WALK && LA_TILED_STEP
/* One token of `count` query heads: once S has the key, they are the tokens of a query. */
LINATTN__COLD static LINATTN__NOINLINE void la_step_others(const linattn__span *s, const la_head *h,
                                                           size_t count)
{
    linattn__span x = *s;
    x.group = x.heads = 1;
    /* with the first query, whose output comes again: what takes keys alone is update's */
    if (h->key) LA_OF(s, step)(&x);
    x.k = NULL;
    x.seen = h->seen;
    x.q = h->query;
    x.q_token = s->q_head;
    x.out = h->out;
    x.out_token = s->out_head;
    x.n = count;
    la_query(&x);
}
#endif

/* Some of the `count` query heads that are left: an odd one goes alone, the others go two by two,
   or all at once. Returns how many these were. */
LINATTN__INLINE size_t la_step_some(const linattn__span *s, la_head *h, la_token *w, size_t count)
{
    const int even = count % 2 == 0 && !LINATTN__ELEMENT(s);
#if LA_TILED_STEP
    if (even && la_step_tiled(s, h, count)) {
        la_step_others(s, h, count);
        return count;
    }
#endif
#if LA_W > 1 && LINATTN__HAS_PREFILL
    if (even && s->params->source == LINATTN__DIRECT && !LINATTN__PAST(s)) {
        la_step_two(s, h, w);
        return 2;
    }
#endif
    (void)even;
#if LINATTN__HAS_UNIT
    if (s->params->source == LINATTN__UNIT) la_step_roots(s, h, w);
#endif
    la_step_parts(s, h, w);
    return 1;
}

/* One token with all query heads of a key/value head. A masked token adds nothing: it only queries,
   but counts for the norm length. */
LINATTN__INLINE void la_step_token(const linattn__span *s, la_head *h, la_token *w)
{
    size_t left = s->group, some;
    if (h->key && !LINATTN__IS_SIGNED(h->map) && s->params->source != LINATTN__MONOMIALS &&
        linattn__masked(h->key, s->d))
        h->key = NULL;
    if (!h->query) left = h->key ? 1 : 0;
    for (; left > 0; left -= some) {
        some = la_step_some(s, h, w, left);
        if (some == left) return;
        h->key = NULL; /* S has it now */
        h->query += some * s->q_head;
        h->out += some * s->out_head;
    }
}

#if LA_W > 1
/* In which tiles rows go by, what is fetched meanwhile, and by which instruction set. */
LINATTN__INLINE void la_step_order(linattn__span *s, la_head *h)
{
    const size_t m = s->m, lanes = LA_LANES(s);
    h->wide = s->dv;
    h->reach = 0;
    h->tiles = linattn__tiles_ahead(s);
    h->apart = lanes == 8 && linattn__contended() ? 1.0f : 0.0f;
    if (linattn__near() && m <= LA_STEP) {
        if (s->stream > 1) {
            h->reach = 32 * m; /* two panels, that lie one behind the other */
            h->wide = 16 / lanes;
        } else {
            h->reach = 48; /* three rows */
            h->stream = lanes == 16 && s->k && s->q;
        }
    } else if (linattn__intel() && s->stream == 1 && s->k) {
        h->stream = 0; /* as in la_once_tiles */
        h->wide = 16 / lanes;
    } else if (lanes == 16 && linattn__halved()) {
#if LINATTN__BOTH
        /* Zen 4 updates heads in L1 that nothing reads up to a tenth faster by halves of lines, and
           as much faster what leaves half a tile. */
        if ((!s->q || linattn__narrow(s->dv)) && s->heads * m * s->dv <= 8192) s->set = 1;
#endif
        if (LA_SAME_PLACE(m, 64) && LA_LANES(s) == 16) h->wide = 1;
    }
}
#endif

#if LA_W > 1 && LINATTN__HAS_PREFILL
/* Is there one query head for each key, and are all features mapped at once? */
LINATTN__INLINE int la_step_alone(const linattn__span *s)
{
    const linattn__params *const p = s->params;
    return s->group == 1 && s->k && s->q && s->m <= LA_STEP && p->source == LINATTN__DIRECT &&
           !LINATTN__IS_EXP(p->map) && !LINATTN__PAST(s) && !LINATTN__ELEMENT(s);
}

/* la_step_token of such. */
LINATTN__INLINE void la_step_one(const linattn__span *s, la_head *h, la_token *w)
{
    if (!LINATTN__IS_SIGNED(h->map) && linattn__masked(h->key, h->m)) {
        h->key = NULL;
        LA_HOT(s, step_query)(s, h, w, 0, h->m);
    } else {
        LA_HOT(s, step_both)(s, h, w, 0, h->m);
    }
    if (!h->plain && !h->clamps) la_end_rows(s, &w->power, h->out, 1);
}
#endif

/* Tokens one by one; just one where there are other kernels. */
static LINATTN__NOINLINE void la_step_heads(linattn__span *s)
{
    LINATTN__LINED la_token w[LA_W > 1 && LINATTN__HAS_PREFILL ? 2 : 1];
    la_head h;
#if LA_MAKES && LA_W > 1
    la_made made;
#endif
    size_t head;
#if LA_W > 1 && LINATTN__HAS_PREFILL
    const int alone = la_step_alone(s);
#endif
#if LA_MAKES && LA_W > 1
    w->made = &made;
#endif
    h.stream = s->stream;
#if LA_W > 1
    la_step_order(s, &h);
#endif
    h.params = s->params;
    h.m = s->m;
    h.dv = s->dv;
    h.begin = s->column_begin;
    h.end = s->column_end;
    h.map = s->params->map;
    h.feature = s->params->norm == LINATTN_NORM_FEATURE;
#if LINATTN__HAS_UNIT
    h.key_params = s->params;
#endif
    h.plain = la_summed_factor(s->params, 1) && !LINATTN__PAST(s);
    h.clamps = 0;
#if LINATTN__HAS_SIGNED && LA_W > 1
    if (la_cancelled_factor(s->params)) h.clamps = !(LINATTN__PAST(s) || LINATTN__ELEMENT(s));
#endif
#if LINATTN__HAS_COMPENSATED
    h.feature += la_past_divides(s);
    h.begun = 0;
#endif
#if LINATTN__HAS_HALF
    h.element = s->element;
    h.ahead = s->ahead;
#if LINATTN__BOTH
    h.set = s->set; /* sums in f16 take Zen 4 an eighth to a fifth less by AVX2 */
    if (h.set > 1 && linattn__halved() && (h.element == LINATTN_F16 || linattn__narrow(s->dv)))
        h.set = 1;
#endif
    h.raise = h.lower = 1.0f;
    if (LINATTN__RAISES(h.element, h.map)) {
        h.raise = LINATTN__RAISED;
        h.lower = LINATTN__LOWERED;
    }
#endif
    for (head = s->heads;; head--) {
        h.z = s->z;
        h.e = s->e;
        h.s = s->s;
#if LINATTN__HAS_PREFILL
        h.key = s->k;
        h.value = s->v;
        h.query = s->q;
        h.out = s->out;
        h.seen = s->seen + (s->k ? 1 : 0);
#if LA_W > 1
        if (alone)
            la_step_one(s, &h, w);
        else
#endif
            la_step_token(s, &h, w);
#else
        {
            size_t t;
            for (t = 0; t < s->n; t++) {
                h.key = s->k ? s->k + t * s->k_token : NULL;
                h.value = s->k ? s->v + t * s->v_token : NULL;
                h.query = s->q ? s->q + t * s->q_token : NULL;
                h.out = s->q ? s->out + t * s->out_token : NULL;
                h.seen = s->seen + (s->k ? t + 1 : 0);
                la_step_token(s, &h, w);
            }
        }
#endif
        if (head == 1) return;
        linattn__move(s, 1);
    }
}
#endif

#if LA_W > 1 && LINATTN__HAS_PREFILL
#ifndef LA_STORE_FEW
LINATTN__INLINE void la_store_few(float *p, la_vec a, int n) { la_store_part(p, a, n); }
#endif

/* Has a head a panel of features and one of columns at most, and an output factor in a float? */
LINATTN__INLINE int la_is_small(const linattn__span *s)
{
    const linattn__params *const p = s->params;
    if (s->m > 16 || s->dv > 16 || p->source != LINATTN__DIRECT || LINATTN__PAST(s)) return 0;
    if (LINATTN__ELEMENT(s) || p->norm == LINATTN_NORM_FEATURE) return 0;
    return !LINATTN__IS_EXP(p->map) || la_summed_factor(p, 0);
}

#if LA_COLD
/* The output factor of all heads under the norms length and none. */
static LINATTN__NOINLINE void la_small_norm(const linattn__span *s, float *scale)
{
    const float one = 1.0f;
    float power;
    linattn__factor(s->params, &one, 0.0f, &one, 0.0f, s->seen + (s->k ? 1 : 0), scale, &power);
}
#endif

/* z += phi(k) of vector j. sign, which a loop over heads is to know beforehand: 1 of a signed map,
   0 of another, -1 of one whose factor is plain. */
LINATTN__INLINE la_vec la_small_key(const linattn__span *s, size_t j, la_vec phi, const int sign)
{
    const size_t f = j * LA_W;
    la_vec z = la_load(s->z + f), low = z;
    if (sign > 0) {
        low = la_load(s->e + f);
        z = la_two_sum(z, phi, &low);
        la_store(s->e + f, low);
    } else {
        z = la_add(z, phi);
    }
    la_store(s->z + f, z);
    return z;
}

#if LINATTN__HAS_SIGNED
/* The terms of its denominator: la_weigh_query of a single term each, whose sum loses nothing. */
LINATTN__INLINE void la_small_terms(const linattn__span *s, const la_vec *phi, const la_vec *z,
                                    float *den, float *lost, const size_t count)
{
    size_t j;
    for (j = 0; j < count; j++) {
        const la_vec term = la_mul(phi[j], z[j]), low = la_load(s->e + j * LA_W);
        la_store(den + j * LA_W, term);
        la_store(lost + j * LA_W, la_fma(phi[j], low, la_fms(phi[j], z[j], term)));
    }
}
#endif

/* The output factor of weights phi, in all lanes: norm, unless that is less than 0. epsilon is that
   of the params, which to a compiler a store of vectors may change: a loop over heads reads it. */
LINATTN__INLINE la_vec la_small_factor(const linattn__span *s, float norm, float epsilon,
                                       const la_vec *phi, const la_vec *z, const int sign,
                                       const size_t count)
{
    la_vec den[LA_PANEL_VECS];
    size_t j;
    (void)s, (void)sign;
    if (sign >= 0 && norm >= 0.0f) return la_set1(norm);
#if LINATTN__HAS_SIGNED
    if (sign > 0) {
        float terms[16], lost[16], scale;
        la_small_terms(s, phi, z, terms, lost, count);
        la_cancel_one(terms, lost, epsilon, &scale, count * LA_W);
        return la_set1(scale);
    }
#endif
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++)
    {
        /* no compiler knows that it adds 0: a product plus a constant 0 is one that clang's
           -ffast-math contracts with la_sum16's sums */
        den[j] = la_zero();
        if (j < count)
            den[j] = la_fma(phi[j], z[j], la_set1(sign < 0 ? epsilon : epsilon - epsilon));
    }
    return la_set1(linattn__inverse(sign < 0 ? la_sum16(den) : la_sum16(den) + epsilon));
}

/* What is read out, times that. */
LINATTN__INLINE la_vec la_small_out(la_vec o, la_vec scale, const int sign)
{
    o = la_mul(o, scale);
    if (sign > 0) o = la_clamp(o);
    return o;
}

/* Is its key one to take? */
LINATTN__INLINE int la_small_keys(const linattn__span *s, const int sign)
{
    return s->k && (sign > 0 || !linattn__masked(s->k, s->m));
}

#if LINATTN__HAS_EXP
/* phi of its key, or the weights of its query, with an exponential map: a vector, or all of a panel
   where there are more features. */
static LINATTN__NOINLINE void la_panel_exp(const linattn__span *s, const float *from, int query,
                                           float *to)
{
    const linattn__params *const p = s->params;
    const int more = s->m > LA_W;
    la_vec n[LA_PANEL_VECS], phi[LA_PANEL_VECS], top[LA_PANEL_VECS];
    float peak = 0.0f;
    size_t j;
    if (!query) la_settle(s, 0, s->m, from);
    LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++)
    {
        const size_t f = j * LA_W;
        top[j] = n[j] = phi[j] = la_set1(-LINATTN__INF);
        if (j == 0 || more) {
            const int lanes = la_panel_lanes(s->m, j);
            const la_vec e = la_load(s->e + f);
            phi[j] = la_split(la_load_most(from + f, lanes), p, n + j);
            n[j] = query ? la_add(n[j], e) : la_sub(n[j], la_key_exponent(e));
            n[j] = la_first(n[j], top[j], lanes);
            top[j] = la_max(n[j], top[j]);
        }
    }
    if (query) peak = la_max16(top);
    if (!(peak > -LINATTN__INF)) peak = 0.0f;
    LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++)
    {
        if (j == 0 || more) la_store(to + j * LA_W, la_scale(phi[j], la_sub(n[j], la_set1(peak))));
    }
}
#endif

#if LA_W < 16
/* One vector of each: also for AVX-512. phi of its features, into `to` as well. exp may be the map
   where the sign is known to be 0 alone. */
LINATTN__INLINE la_vec la_small_phi(const linattn__span *s, const float *from, int query, float *to,
                                    const int sign)
{
    const linattn__params *const p = s->params;
    const int lanes = (int)s->m;
    la_vec phi;
#if LINATTN__HAS_EXP
    if (sign >= 0 && LINATTN__IS_EXP(p->map)) {
        la_panel_exp(s, from, query, to);
        return la_load(to);
    }
#endif
    (void)query, (void)sign;
    phi = la_plain(la_mul(la_load_part(from, lanes), la_set1(p->root)), p, p->map);
    if (lanes < LA_W) phi = la_first(phi, la_zero(), lanes);
    la_store(to, phi);
    return phi;
}

/* Its rows take the key and are read by the query, if there are. */
LINATTN__INLINE la_vec la_small_rows(const linattn__span *s, const float *kq, la_vec v,
                                     const int keys, const int queries)
{
    const float *const end = kq + s->m;
    float *row = s->s;
    la_vec o = la_zero();
    for (; kq < end; kq++, row += 16) {
        la_vec x = la_load(row);
        if (keys) {
            x = la_fma_hot(la_set1(kq[0]), v, x);
            la_store(row, x);
        }
        if (queries) o = la_fma_hot(la_set1(kq[16]), x, o);
    }
    return o;
}

/* One token of it: what la_step_token does, with less between memory and registers. */
LINATTN__INLINE void la_small_token(const linattn__span *s, float norm, const int sign)
{
    const linattn__params *const p = s->params;
    const int columns = (int)s->dv, keys = la_small_keys(s, sign);
    const float *query = s->q;
    float kq[32], *out = s->out;
    la_vec z = la_load(s->z), phi = la_zero(), v = phi, o;
    size_t g;
    if (keys) {
        const la_vec key = la_small_phi(s, s->k, 0, kq, sign);
        z = la_small_key(s, 0, key, sign);
        v = la_load_part(s->v, columns);
    }
    if (keys && !query) (void)la_small_rows(s, kq, v, 1, 0);
    for (g = 0; query && g < s->group; g++) {
        phi = la_small_phi(s, query, 1, kq + 16, sign);
        if (keys && g == 0)
            o = la_small_rows(s, kq, v, 1, 1);
        else
            o = la_small_rows(s, kq, v, 0, 1);
        o = la_small_out(o, la_small_factor(s, norm, p->epsilon, &phi, &z, sign, 1), sign);
        la_store_few(out, o, columns);
        query += s->q_head;
        out += s->out_head;
    }
    if (keys && columns < 16 && la_any(la_unordered(la_sub(z, z)))) la_clear_padding(s);
}

LINATTN__INLINE void la_small_heads(linattn__span *s, float norm, const int sign)
{
    size_t head;
    for (head = s->heads;; head--) {
        la_small_token(s, norm, sign);
        if (head == 1) return;
        linattn__move(s, 1);
    }
}

static LINATTN__NOINLINE void la_small_step(linattn__span *s) { la_small_heads(s, -1.0f, -1); }

/* Signed maps, exp, other norms, epsilon. */
static LINATTN__NOINLINE void la_small_other(linattn__span *s)
{
    float norm = -1.0f;
    if (s->params->norm != LINATTN_NORM_SUM) la_small_norm(s, &norm);
    la_small_heads(s, norm, LINATTN__IS_SIGNED(s->params->map));
}

#endif

/* Several vectors of each, the first of them full. How many of `count` numbers are in vector j,
   where those in the last one are counted once for all heads. */
LINATTN__INLINE int la_panel_part(size_t count, int last, size_t j)
{
    if (j + 1 == LA_PANEL_VECS) return last;
    return j == 0 ? LA_W : la_panel_lanes(count, j);
}

LINATTN__INLINE void la_panel_phi(const linattn__span *s, const float *from, int query, float *to,
                                  la_vec *phi, const int features)
{
    const linattn__params *const p = s->params;
    size_t j;
#if LINATTN__HAS_EXP
    if (LINATTN__IS_EXP(p->map)) {
        la_panel_exp(s, from, query, to);
        LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) phi[j] = la_load(to + j * LA_W);
        return;
    }
#endif
    (void)query;
    LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++)
    {
        const int lanes = la_panel_part(s->m, features, j);
        const la_vec x = la_load_most(from + j * LA_W, lanes);
        phi[j] = la_plain(la_mul(x, la_set1(p->root)), p, p->map);
        if (lanes < LA_W) phi[j] = la_first(phi[j], la_zero(), lanes);
        la_store(to + j * LA_W, phi[j]);
    }
}

LINATTN__INLINE void la_panel_rows(const linattn__span *s, const float *kq, const la_vec *v,
                                   la_vec *o, const int keys, const int queries)
{
    const float *const end = kq + s->m;
    float *row = s->s;
    la_vec x[LA_PANEL_VECS];
    size_t j;
    LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) o[j] = la_zero();
    for (; kq < end; kq++, row += 16) {
        LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) x[j] = la_load(row + j * LA_W);
        if (keys) {
            const la_vec kf = la_set1(kq[0]);
            LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) x[j] = la_fma_hot(kf, v[j], x[j]);
            LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) la_store(row + j * LA_W, x[j]);
        }
        if (queries) {
            LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) o[j] =
                la_fma_hot(la_set1(kq[16]), x[j], o[j]);
        }
    }
}

LINATTN__INLINE void la_panel_token(const linattn__span *s, float norm, float epsilon,
                                    const int sign, const int features, const int columns)
{
    const int keys = la_small_keys(s, sign);
    const float *query = s->q;
    float kq[32], *out = s->out;
    la_vec phi[LA_PANEL_VECS], z[LA_PANEL_VECS], v[LA_PANEL_VECS], o[LA_PANEL_VECS], scale;
    size_t g, j;
    if (keys) la_panel_phi(s, s->k, 0, kq, phi, features);
    LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++)
    {
        z[j] = la_load(s->z + j * LA_W);
        if (keys) {
            z[j] = la_small_key(s, j, phi[j], sign);
            v[j] = la_load_part(s->v + j * LA_W, la_panel_part(s->dv, columns, j));
        }
    }
    if (keys && !query) la_panel_rows(s, kq, v, o, 1, 0);
    for (g = 0; query && g < s->group; g++) {
        la_panel_phi(s, query, 1, kq + 16, phi, features);
        if (keys && g == 0)
            la_panel_rows(s, kq, v, o, 1, 1);
        else
            la_panel_rows(s, kq, v, o, 0, 1);
        scale = la_small_factor(s, norm, epsilon, phi, z, sign, LA_PANEL_VECS);
        LINATTN__UNROLL for (j = 0; j < LA_PANEL_VECS; j++) la_store_few(
            out + j * LA_W, la_small_out(o[j], scale, sign), la_panel_part(s->dv, columns, j));
        query += s->q_head;
        out += s->out_head;
    }
    if (keys && s->dv < 16) {
        LINATTN__UNROLL for (j = 1; j < LA_PANEL_VECS; j++) z[0] = la_add(z[0], z[j]);
        if (la_any(la_unordered(la_sub(z[0], z[0])))) la_clear_padding(s);
    }
}

static LINATTN__NOINLINE void la_panel_step(linattn__span *s)
{
    const int sign = LINATTN__IS_SIGNED(s->params->map);
    const int features = la_panel_lanes(s->m, LA_PANEL_VECS - 1);
    const int columns = la_panel_lanes(s->dv, LA_PANEL_VECS - 1);
    const float epsilon = s->params->epsilon;
    float norm = -1.0f;
    size_t head;
    if (s->params->norm != LINATTN_NORM_SUM) la_small_norm(s, &norm);
    for (head = s->heads;; head--) {
        la_panel_token(s, norm, epsilon, sign, features, columns);
        if (head == 1) return;
        linattn__move(s, 1);
    }
}

#endif

static void la_step(linattn__span *s)
{
#if LA_W > 1 && LINATTN__HAS_PREFILL
    if (la_is_small(s)) {
#if LA_W < 16 || LINATTN__BOTH
        const size_t one = LA_W < 16 ? LA_W : 8;
        if (s->m <= one && s->dv <= one) {
            if (la_summed_factor(s->params, 1) && !LINATTN__IS_EXP(s->params->map))
                la_small_step(s);
            else
                la_small_other(s);
            return;
        }
#endif
#if LA_W == 16 && LINATTN__BOTH
        /* Zen 4 takes these by two vectors up to a sixth faster than by one, and updates alone by a
           twentieth; but several heads of elu1 with queries a twentieth slower. */
        if (linattn__halved() && s->m > 8 && s->dv > 8 &&
            (!s->q || s->heads == 1 || !LINATTN__IS_ELU1(s->params->map))) {
            LA_COMMON(panel_step)(s);
            return;
        }
#endif
        if (LA_PANEL_VECS == 1 || (s->m > LA_W && s->dv > LA_W)) {
            la_panel_step(s);
            return;
        }
    }
#endif
    la_step_heads(s);
}

#if LINATTN__HAS_COMPENSATED
/* ---- Sums: the past -------------------------------------------------------------------------- */

#if LA_WALK
/* Reads a run out of the past, behind what the tiles read of the sums: token by token, with what a
   decode step has, so that causal alone needs no other tiles. */
LINATTN__COLD static LINATTN__NOINLINE void la_past_run(const linattn__span *s, la_scratch *w,
                                                        la_chunk *c, const la_tile *a)
{
    la_token one;
    la_head h;
    size_t g, t;
    h.m = s->m;
    h.dv = s->dv;
    h.s = s->s + s->past;
#if LINATTN__HAS_HALF
    h.element = LINATTN_F32;
    h.raise = h.lower = 1.0f;
#endif
    h.clamps = h.stream = 0;
    h.reach = h.tiles = 0;
    h.apart = 0.0f;
    h.wide = s->dv;
    h.begun = 1;
    for (g = 0; g < a->heads; g++) {
        const size_t row = g * c->count + c->t;
        c->row0 = g * c->count;
        c->query = a->q_in + g * s->q_head;
        LA_OF(s, past_weights)
        (s, w->q + row * LA_ROW, w->den + row * 16, c->end - c->t, c->f0, c->f1);
        if (c->last) la_finish(s, w, c);
    }
    for (h.begin = s->column_begin; h.begin < s->column_end; h.begin = h.end) {
        h.end = s->column_end - h.begin < 64 ? s->column_end : h.begin + 64;
        for (g = 0; g < a->heads; g++)
            for (t = c->t; t < c->end; t++) {
                const size_t row = g * c->count + t;
                linattn__copy(one.q, w->q + row * LA_ROW, (c->f1 - c->f0) * sizeof(float));
                one.scale = w->scale[row];
                h.out = a->out + g * s->out_head + t * s->out_token;
                LA_OF(s, step_read)(&h, &one, c->f0, c->f1);
            }
    }
}
#endif

#if LA_COLD
/* past = left + x, and x becomes what that lost, and `lost`. Sums that overflow lose nothing. */
LINATTN__INLINE void la_fold_vector(float *past, float *x, la_vec left, la_vec lost)
{
    la_store(past, la_two_sum(left, la_load(x), &lost));
    la_store(x, la_select(la_unordered(la_sub(lost, lost)), la_zero(), lost));
}

LINATTN__COLD static LINATTN__NOINLINE void la_fold_vectors(float *past, float *x, size_t count)
{
    size_t i;
    for (i = 0; i < count; i += LA_W) la_fold_vector(past + i, x + i, la_load(past + i), la_zero());
}

/* One head: moves what the sums hold to the past. */
LINATTN__COLD static void la_fold(const linattn__span *s)
{
    const size_t m16 = linattn__round16(s->m), panels = (s->dv + 15) / 16;
    float *const e = s->s + s->past - m16, *const z = e - m16;
    linattn__span past = *s;
    size_t f;
    past.s += s->past;
    past.z = z;
#if LINATTN__HAS_HALF
    past.element = LINATTN_F32;
#endif
    past.column_begin = 0;
    past.column_end = s->dv;
    for (f = 0; LINATTN__IS_EXP(s->params->map) && f < s->m; f++) {
        if (s->e[f] > e[f]) la_rescale_row(&past, f, e + f, s->e + f);
        e[f] = s->e[f];
    }
    la_fold_vectors(past.s, s->s, s->m * panels * 16);
    /* signed maps keep what z loses at every token, but not what that sum loses in turn */
    if (LINATTN__IS_SIGNED(s->params->map))
        la_fold_vectors(s->z, s->e, m16);
    else
        la_fold_vectors(z, s->z, m16);
}
#endif
#endif

#if LINATTN__HAS_RECURRENT
/* ---- Recurrences ----------------------------------------------------------------------------- */

/* One pass over S for each token: while row f takes the token, its output reads the row, and so
   does what the next token's key reads from S. Columns are independent, so that a tile of columns
   stays in L1 over a block of tokens. */

/* A block's tokens, and what is made for them; features are taken so many at a time where they do
   not fit. Operands that need no map are used where they lie. */
#define LA_RULE_WIDE (LA_W > 1 || LINATTN__BOTH) /* what sets share has room for vectors */
#define LA_RULE_TOKENS (LA_RULE_WIDE ? 32 : 2)
#define LA_RULE_ROWS (LA_RULE_WIDE ? 512 : 96)
#define LA_RULE_FLOATS (LA_W > 1 ? 8192 + 16 : 384) /* 16: to where a line of the cache begins */
#define LA_RULE_GROUPS (LA_RULE_ROWS / 16)
#define LA_OWED_ROWS 32                    /* which pay what they owe together */
#define LA_DECAY_ROWS (LA_W > 1 ? 64 : 16) /* whose decays are made together, token by token */

/* What is flushed before a token: all rows. */
#define LA_ALL 2

#if LA_WALK
typedef struct la_tokens {
    float decay[LA_RULE_TOKENS + LA_MOST],
        gain[LA_RULE_TOKENS + (LA_RULE_WIDE ? LA_MOST : 0)]; /* gain: of the values */
    float share[LA_RULE_TOKENS + LA_RULE_WIDE];              /* what reads may leave of the sums */
    float lead[LA_RULE_TOKENS];                              /* of the bonus */
    float factor[LA_RULE_TOKENS]; /* what sums are multiplied by before a token, if not by rows; */
    float owed[LA_RULE_TOKENS];   /* what is stored is to be multiplied by after it, to be S, */
    float due[LA_RULE_TOKENS];    /* and before it, once that has decayed; */
    float paid[LA_RULE_TOKENS];   /* and what values are, gain included */
    float scale[LA_RULE_TOKENS], power[LA_RULE_TOKENS], top[LA_RULE_TOKENS];
    float den[LA_RULE_TOKENS * 16], lost[LA_RULE_TOKENS * 16];
    float lanes[LA_RULE_TOKENS * 16]; /* of the bonus; or what the next block's first key reads */
    uint16_t flagged[LA_RULE_TOKENS * LA_RULE_GROUPS]; /* rows to flush, one bit each */
    unsigned char any[LA_RULE_TOKENS];                 /* some of them; LA_ALL: all */
    uint16_t pays[LA_RULE_TOKENS]; /* rows that are multiplied first, a bit for LA_OWED_ROWS */
#if LA_RULE_WIDE
    linattn__ahead ahead;         /* what a tile fetches of the tokens that follow the block, */
    size_t ahead_less, ahead_end; /* which have numbers less by this, and end here */
#endif
} la_tokens;

/* One head, and a block of its tokens. */
typedef struct la_rule {
    linattn__span s; /* of this head */
    const linattn__recurrence *x;
    la_tokens *w;
    float *kept, *credit, *scalars, *corrected;
    const float *gate[LINATTN__GATES];
#if LA_RULE_WIDE
    linattn__ahead ahead, after;   /* of this head, and of that whose turn is next: */
    size_t after_begin, after_end; /* of these tokens */
    size_t fetch;                  /* lines of either for each 16 columns */
#endif
    int rule, reads, before; /* reads: its keys read S */
    int owes, each;          /* sums do not decay: see OWED; and each row by itself, see ROWS */
    int rows;                /* this head's have done so */
    int reading;             /* or might have: queries that read them are weighed */
    int in_place, power;     /* the map: none, or e^x without exponents */
    int normal, signs;       /* z is kept; saturating outputs */
    int per_feature, whole;  /* all features at once */
    size_t most, step;       /* tokens of a block, features at a time */
    size_t row;              /* of what is made */
    float *k_made, *q_made, *a_made, *r_made, *write_made;
    int keeps;   /* by what each row decays, token by token */
    int settled; /* exponents have moved for this key, and rows are as small as it leaves them */
#if LINATTN__HAS_COMPENSATED
    size_t past;           /* as in linattn__span */
    float *since, *p_made; /* by what rows of the past have decayed; weights that read them */
#endif
    size_t t0, count, f0, f1;
    /* 0 or 1: a block's last token may read for the one behind it; this block's does; the one
       before did */
    unsigned char carries, beyond, carried;
    int first, last; /* of the features */
    int kind;        /* what tiles do */
#if LINATTN__BOTH
    int set; /* by which instruction set */
#endif
    const float *query; /* of token t0 */
    float *out;         /* likewise; NULL: none */
    size_t out_token;
    la_rows k, q, a, r, p; /* from feature f0 on */
    size_t a_step;         /* 0: one decay for all rows */
} la_rule;
#endif
#define LA_BEYOND(b) (LA_W > 1 ? (size_t)(b)->beyond : 0)

/* ---- Recurrences: what a block needs --------------------------------------------------------- */

#if LA_COLD
/* exp of a block's logarithms. */
static LINATTN__NOINLINE void la_rule_powers(float *x, size_t count)
{
    size_t i;
    for (i = 0; i < count; i += LA_W) la_store(x + i, la_exp_full(la_load(x + i)));
}

/* Each of `count` x = p 2^n with p in [.7, 1.42): of e^x, or of x itself, where p is [.75, 1.5). x
   is then p; n is -inf for nothing. */
static LINATTN__NOINLINE void la_rule_split(float *x, float *n, size_t count, int logs)
{
    linattn__params p;
    size_t i;
    p.root = 1.0f;
    p.root_low = 0.0f;
    p.rate = 1.44269502f;
    p.limit = 1453634.0f; /* 2^21 ln(2) */
    for (i = 0; logs && i < count; i += LA_W) {
        la_vec power;
        la_store(x + i, la_split(la_load(x + i), &p, &power));
        la_store(n + i, power);
    }
    for (i = 0; !logs && i < count; i++) {
        uint32_t bits = linattn__to_bits(x[i]);
        const uint32_t none = 0xff800000u; /* the bits of -inf: up to there 0 or less */
        const int nothing = bits == 0 || (bits >= 0x80000000u && bits <= none);
        const int denormal = bits - 1 < 0x007fffffu; /* that many times 2^-149 */
        uint32_t half;
        if (denormal) bits = linattn__to_bits((float)bits);
        half = bits & 0x00400000u; /* of [1.5, 2) */
        n[i] = (float)((int)(bits >> 23 & 0xff) + (half != 0) - (denormal ? 127 + 149 : 127));
        if (nothing) n[i] = -LINATTN__INF;
        if (x[i] <= LINATTN__FLT_MAX) /* neither inf nor NaN */
            x[i] = linattn__from_bits((bits & 0x007fffffu) | (0x3f800000u - 2 * half));
    }
}

/* *x *= 2^n, mostly within range. */
LINATTN__INLINE void la_rule_ldexp(float *x, float n)
{
    if (n > -126.0f && n < 127.0f)
        *x = linattn__flush(linattn__clamp(*x * linattn__pow2((int)n)));
    else
        linattn__saturating_ldexp(x, n);
}

/* mLSTM: sums are stored times 2^-E. E follows the decays, so that what is stored stays near what
   it was, and an input gate that exceeds it by far. f16 has little room: there "what it was" is the
   largest input gate since, decayed, lest older ones that have decayed further set the scale of
   sums that this one made. Turns gates, whose powers of two lie in `power` and `scale`, into the
   factors of the stored sums and of the keys. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_stabilise(const la_rule *b, size_t t)
{
    float *const scalars = b->scalars;
    const float f = b->w->decay[t], i = b->w->gain[t], n_i = b->w->scale[t];
    float n_f = b->w->power[t], e = scalars[LINATTN__EXPONENT], drift, factor, shift;
#if LINATTN__HAS_COMPENSATED
    const float none = 0.0f;
#endif
    factor = f;
    drift = scalars[LINATTN__DRIFT] * f;
    if (n_f < LINATTN__LOWEST) { /* all is forgotten */
        e = -LINATTN__INF;
        factor = 0.0f;
    }
    if (e > LINATTN__LOWEST) {
        const float k = linattn__exponent_of(linattn__to_bits(drift));
        e = e + n_f;
        if (k > 8.0f || k < -8.0f) {
            e = e + k;
            factor = factor * linattn__pow2((int)-k);
            drift = drift * linattn__pow2((int)-k);
        }
    }
    if (!(e > -2097152.0f)) e = -LINATTN__INF;
    if (e > 2097152.0f) e = 2097152.0f;
    if (n_i > LINATTN__LOWEST && !(n_i <= e + LINATTN__HEADROOM)) {
        shift = e > LINATTN__LOWEST ? e - n_i : 0.0f;
        la_rule_ldexp(&factor, shift);
        if (!(e > LINATTN__LOWEST)) factor = factor * 0.0f;
        e = n_i;
        drift = 1.0f;
    }
    b->w->decay[t] = factor;
    b->w->gain[t] = i;
    if (n_i > LINATTN__LOWEST && e > LINATTN__LOWEST)
        la_rule_ldexp(b->w->gain + t, n_i - e);
    else
        b->w->gain[t] = i * 0.0f;
#if LINATTN__HAS_HALF
    if (b->s.element == LINATTN_F16 && b->w->gain[t] > drift) drift = b->w->gain[t];
#endif
    scalars[LINATTN__EXPONENT] = e;
    scalars[LINATTN__DRIFT] = drift;
    b->w->top[t] = e;
#if LINATTN__HAS_COMPENSATED
    if (b->past)
        linattn__decay_kept(scalars, &f, &none);
    else
#endif
        scalars[LINATTN__KEPT_FACTOR] = scalars[LINATTN__KEPT_FACTOR] * f;
    if (n_f < LINATTN__LOWEST) n_f = LINATTN__LOWEST;
    scalars[LINATTN__KEPT_EXPONENT] = scalars[LINATTN__KEPT_EXPONENT] + n_f;
    linattn__normalise_kept(scalars);
}

/* The credit of a row that was flushed before it decays by `by`. Statements, not ?: on floats, as
   in the vocabulary. */
LINATTN__INLINE float la_rule_afresh(float by)
{
    if (!(by > LINATTN__SPENT)) by = LINATTN__SPENT;
    if (by > 1.0f) by = 1.0f;
    return by;
}

/* Credit after a decay `by`, at most 1. Returns whether it is spent: then the row is to be flushed.
   One that decays by 0 is flushed by that. */
LINATTN__INLINE int la_rule_spends(float *credit, float by)
{
    float left = *credit * by;
    if (by == 0.0f || left > 1.0f) left = 1.0f;
    *credit = left;
    if (!(left < LINATTN__SPENT)) return 0;
    *credit = la_rule_afresh(by);
    return 1;
}

/* One token's decay, `by`, joins what is owed, or S is to be multiplied by what this returns. */
LINATTN__INLINE float la_rule_owe(float *owed, float by, int mlstm)
{
    const float due = *owed * by;
    *owed = due;
    if (due >= 1.0f && due <= LINATTN__OWED_MOST) return 1.0f;
    *owed = mlstm && !(due < 1.0f) ? LINATTN__OWED_MLSTM : LINATTN__OWED_MOST;
    return due / *owed;
}

/* Decays that all rows share: a multiplication of each sum for each token is saved where values are
   divided by what is owed, and outputs and what keys read multiplied. */
static LINATTN__NOINLINE void la_rule_debts(la_rule *b)
{
    la_tokens *const w = b->w;
    const int mlstm = b->rule == LINATTN_RULE_MLSTM;
    float owed = linattn__owed(b->scalars);
    size_t t;
    for (t = 0; t < b->count; t++) {
        w->factor[t] = w->decay[t];
        w->due[t] = w->owed[t] = 1.0f;
        w->paid[t] = w->gain[t];
        if (!b->owes) continue;
        w->due[t] = owed * w->decay[t];
        w->factor[t] = la_rule_owe(&owed, w->decay[t], mlstm);
        w->owed[t] = owed;
        w->paid[t] = w->gain[t] / owed;
    }
    if (b->owes) b->scalars[LINATTN__OWED] = owed;
}

/* Decays that all rows share: when is it time to flush them? */
static LINATTN__NOINLINE void la_rule_credit(la_rule *b)
{
    const la_tokens *const w = b->w;
    float credit = b->scalars[LINATTN__CREDIT], kept = b->scalars[LINATTN__KEPT];
    size_t t;
    for (t = 0; t < b->count; t++) {
        const float by = w->factor[t] * w->share[t], left = credit * by;
        b->w->any[t] = 0;
        if (left >= LINATTN__SPENT && left <= 1.0f) /* predicted: only products take turns */
            credit = left;
        else if (la_rule_spends(&credit, by))
            b->w->any[t] = LA_ALL;
        if (!b->keeps) continue;
        kept = kept * w->decay[t];
        if (!(kept >= LINATTN__FLT_MIN)) kept = linattn__flush(kept);
    }
    b->scalars[LINATTN__CREDIT] = credit;
    if (b->keeps) b->scalars[LINATTN__KEPT] = kept;
}

/* Are a token's values all so small that they do not make up for what its key reads? Mostly the
   first tells; NaN does not. */
LINATTN__INLINE int la_rule_quiet(const float *v, size_t dv)
{
    const la_vec least = la_set1(LINATTN__FLUSHED);
    const uint32_t first = linattn__to_bits(v[0]) & 0x7fffffffu;
    size_t c;
    if (first > 0x18800000u /* that of LINATTN__FLUSHED */ && first <= 0x7f800000u) return 0;
    for (c = 0; c < dv; c += LA_W) {
        const la_vec x = la_load_part(v + c, la_lanes_left(dv, c));
        if (la_any(la_gt(la_max(la_sub(la_zero(), x), x), least))) return 0;
    }
    return 1;
}

/* By how much what a key reads may lessen the sums. Where values are nought: along a unit key to
   1 - beta, where that is known; some sums shrink faster, but not for long. Else little. */
LINATTN__INLINE float la_rule_left(const la_rule *b, size_t t, float beta)
{
    float left = 1.0f - beta;
    if (!la_rule_quiet(b->s.v + (b->t0 + t) * b->s.v_token, b->s.dv)) return 0.96f;
    if (b->rule == LINATTN_RULE_GENERAL) return 0.0625f;
    if (left < 0.0f) left = 0.0f - left;
    if (beta > 1.0f && left > 0.5f) left = 0.5f;
    if (left > 1.0f) left = 1.0f;
    if (!(left > 0.0625f)) left = 0.0625f;
    return left;
}

/* Where gate `which` of a block begins, and the step from token to token; 1 where there is none. */
LINATTN__INLINE const float *la_rule_gate(const la_rule *b, int which, size_t *step)
{
    static const float one = 1.0f;
    *step = b->gate[which] ? b->x->gates->gate[which].token : 0;
    return b->gate[which] ? b->gate[which] + b->t0 * *step : &one;
}

/* The gates that are one number for each head. */
static LINATTN__NOINLINE void la_rule_gates(la_rule *b)
{
    const linattn__gating *const g = b->x->gates;
    const int mlstm = b->rule == LINATTN_RULE_MLSTM;
    const size_t count = b->count + LA_BEYOND(b);
    la_tokens *const w = b->w;
    size_t t, d_step, g_step;
    const float *decay = la_rule_gate(b, LINATTN__DECAY, &d_step);
    const float *gain = la_rule_gate(b, mlstm ? LINATTN__INPUT : LINATTN__BETA, &g_step);
    for (t = 0; t < count; t++, decay += d_step, gain += g_step) {
        w->decay[t] = *decay;
        w->gain[t] = *gain;
        w->share[t] = b->reads ? la_rule_left(b, t, *gain) : 1.0f;
    }
    for (; t % LA_W; t++) w->decay[t] = w->gain[t] = 0.0f; /* of the vectors below */
    if (LINATTN__RAISES(LINATTN__ELEMENT(&b->s), b->s.params->map))
        for (t = 0; t < b->count; t++) w->gain[t] = LINATTN__RAISED;
    if (!mlstm && g->logs && !b->per_feature && b->gate[LINATTN__DECAY])
        la_rule_powers(w->decay, b->count + LA_BEYOND(b));
    if (mlstm) {
        la_rule_split(w->decay, w->power, b->count, g->logs);
        la_rule_split(w->gain, w->scale, b->count, 1);
    }
    for (t = 0; t < b->count && mlstm; t++) la_rule_stabilise(b, t);
    la_rule_debts(b);
    if (!b->per_feature) la_rule_credit(b);
}
#endif

/* phi of a block's keys or queries, where the map is not what lies in the operands. */
static LINATTN__NOINLINE void la_rule_map(la_rule *b, const float *x, size_t x_token, float *to,
                                          int keys)
{
    linattn__params local = *b->s.params, *const p = &local; /* which no store can change */
    const int linear = !(LINATTN__IS_EXP(p->map) || LINATTN__IS_ELU1(p->map) || b->power);
    size_t t, f;
    for (t = 0; t < b->count; t++, x += x_token, to += b->row) {
        float root = p->root, top = 0.0f;
        if (!keys && LINATTN__IS_EXP(p->map) && b->w->top[t] > -LINATTN__INF) top = b->w->top[t];
#if LINATTN__HAS_UNIT
        if (p->source == LINATTN__UNIT) la_unit_root(x, b->s.d, &root);
        local.root = root;
#endif
        f = b->f0;
        for (; linear && b->f1 - f >= LA_W; f += LA_W)
            la_store(to + (f - b->f0),
                     la_plain(la_mul(la_load(x + f), la_set1(root)), p, LINATTN_MAP_RELU));
        for (; f < b->f1; f += LA_W) {
            const int lanes = la_lanes_left(b->f1, f);
            const la_vec e = la_load(b->s.e + f), from = la_load_part(x + f, lanes);
            la_vec phi, n;
            if (LINATTN__IS_EXP(p->map)) {
                phi = la_split(from, p, &n);
                n = keys ? la_sub(n, la_key_exponent(e)) : la_sub(la_add(n, e), la_set1(top));
                phi = la_scale(phi, n);
            } else {
                phi = la_mul(from, la_set1(root));
                phi = b->power ? la_exp_full(phi) : la_plain(phi, p, p->map);
            }
            if (lanes < LA_W) phi = la_first(phi, la_zero(), lanes);
            la_store(to + (f - b->f0), phi);
        }
    }
}

/* Rows [f, end) over a block's tokens: logarithms become factors, r = a k is made for the gated
   delta rule; what credit and kept decay to. Returns whether all decays are in [0, 1]. The lines of
   the next rows are fetched, or the first of their vectors waits for L2 or L3 at every token. */
static LINATTN__NOINLINE int la_rule_decay_rows(const la_rule *b, size_t f, size_t end,
                                                float *credit, float *kept)
{
    const la_vec one = la_set1(1.0f);
    const float *const share = b->w->share;
    const size_t a_row = b->a.row, k_row = b->k.row, row = b->row, count = b->count;
    const size_t all_tokens = count + LA_BEYOND(b);
    const int logs = b->a_made != NULL, reads = b->r_made != NULL;
    la_vec high = one, low = one;
    size_t t, i;
    for (i = 0; i < end - f; i += LA_W) {
        const size_t at = f - b->f0 + i;
        const float *const a_at = b->a.at + at, *const k_at = b->k.at + at;
        float *const a_to = logs ? b->a_made + at : NULL, *const r_to =
                                                              reads ? b->r_made + at : NULL;
        const int lanes = la_lanes_left(end, f + i), more = LA_W > 1 && b->f1 - (f + i) > 16;
        la_vec left = la_load(b->credit + f + i), all = la_load(b->kept + f + i);
        for (t = 0; t < all_tokens; t++) {
            la_vec a = la_load_part(a_at + t * a_row, lanes);
            if (more) LINATTN__FETCH_NEAR(a_at + t * a_row + 16);
            if (more && reads) LINATTN__FETCH_NEAR(k_at + t * k_row + 16);
            if (logs) {
                a = la_exp_full(a);
                la_store(a_to + t * row, a);
            }
            if (reads) la_store(r_to + t * row, la_mul(a, la_load_part(k_at + t * k_row, lanes)));
            if (t == count) break;
            high = la_max(a, high);
            low = la_min(a, low);
            left = la_mul(left, la_mul(a, la_set1(share[t])));
            all = la_mul(all, a);
        }
        la_store(credit + i, left);
        la_store(kept + i, all);
    }
    return !la_any(la_gt(la_zero(), low)) && !la_any(la_gt(high, one));
}

LINATTN__INLINE la_vec la_rule_row_owed(const float *low)
{
    const la_vec x = la_load(low);
    return la_select(la_eq(x, la_zero()), la_set1(1.0f), x);
}

/* Two vectors are unrolled, more are not. */
#if LA_W == 16
#define LA_EACH_OWED LINATTN__UNROLL
#else
#define LA_EACH_OWED
#endif

/* Rows [f, end), NV vectors, over a block's tokens: what each is due; before a token for which one
   of them is to pay all of them do, and what they are multiplied by lies where that token's dues
   would. What credit and kept become. Returns whether no credit was spent, or rose above 1, by a
   payment; between payments it only falls. */
LINATTN__INLINE int la_rule_due(const la_rule *b, size_t f, size_t end, float *credit, float *kept,
                                const size_t NV)
{
    const la_vec one = la_set1(1.0f), most = la_set1(LINATTN__ROWS_MOST);
    const size_t at = f - b->f0, count = b->count, all_tokens = count + LA_BEYOND(b);
    const size_t a_row = b->a.row, row = b->row;
    const int logs = b->x->gates->logs, reads = b->reads, keeps = b->keeps;
    const int whole = end - f == NV * LA_W, more = LA_W > 1 && b->f1 - f > NV * LA_W;
    const float *from = b->a.at + at, *share = b->w->share;
    float *to = b->a_made + at;
    la_vec owed[LA_OWED_ROWS / LA_W], left[LA_OWED_ROWS / LA_W], all[LA_OWED_ROWS / LA_W];
    la_vec due[LA_OWED_ROWS / LA_W];
    int good = 1;
    size_t t, j;
    LA_EACH_OWED for (j = 0; j < NV; j++)
    {
        owed[j] = la_rule_row_owed(b->s.e + f + j * LA_W);
        left[j] = la_load(b->credit + f + j * LA_W);
        all[j] = la_load(b->kept + f + j * LA_W);
    }
    for (t = 0; t < all_tokens; t++, from += a_row, to += row, share++) {
        int usual = 1;
        if (more) LINATTN__FETCH_NEAR(from + NV * LA_W);
        LA_EACH_OWED for (j = 0; j < NV; j++)
        {
            const int lanes = la_lanes_left(end, f + j * LA_W);
            const float *const x = from + j * LA_W;
            la_vec a = whole ? la_load(x) : la_load_part(x, lanes);
            if (logs) a = la_exp_full(a);
            if (!whole) a = la_first(a, one, lanes);
            due[j] = la_mul(owed[j], a);
            if (!la_between(due[j], 1.0f, LINATTN__ROWS_MOST)) usual = 0;
            if (keeps) all[j] = la_normal(la_mul(all[j], a));
        }
        if (usual || t == count) {
            LA_EACH_OWED for (j = 0; j < NV; j++)
            {
                owed[j] = due[j];
                la_store(to + j * LA_W, due[j]);
                if (reads && t < count) left[j] = la_mul(left[j], la_set1(*share));
            }
            continue;
        }
        b->w->pays[t] = (uint16_t)(b->w->pays[t] | 1u << at / LA_OWED_ROWS);
        LA_EACH_OWED for (j = 0; j < NV; j++)
        {
            const la_vec by = la_mul(due[j], la_div(one, most));
            const int lanes = la_lanes_left(end, f + j * LA_W);
            const la_vec before = la_first(left[j], one, lanes);
            la_store(to + j * LA_W, by);
            owed[j] = most;
            left[j] = la_first(la_mul(left[j], la_mul(by, la_set1(*share))), one, lanes);
            if (!la_between(before, LINATTN__SPENT, 1.0f) ||
                !la_between(left[j], LINATTN__SPENT, 1.0f))
                good = 0;
        }
    }
    LA_EACH_OWED for (j = 0; j < NV; j++)
    {
        la_store(credit + j * LA_W, left[j]);
        la_store(kept + j * LA_W, all[j]);
    }
    return good;
}

#if LA_W == 16
/* Of at most LA_OWED_ROWS rows. */
static LINATTN__NOINLINE int la_rule_due_rows(const la_rule *b, size_t f, size_t end, float *credit,
                                              float *kept)
{
    return end - f > LA_W ? la_rule_due(b, f, end, credit, kept, 2)
                          : la_rule_due(b, f, end, credit, kept, 1);
}
#else
LINATTN__COLD static LINATTN__NOINLINE int
la_rule_due_tokens(const la_rule *b, size_t f, size_t end, float *credit, float *kept)
{
    return la_rule_due(b, f, end, credit, kept, (end - f + LA_W - 1) / LA_W);
}

/* The same a vector at a time, as long as no row is to pay: so many vectors do not stay in
   registers. */
static LINATTN__NOINLINE int la_rule_due_rows(const la_rule *b, size_t f, size_t end, float *credit,
                                              float *kept)
{
    const la_vec one = la_set1(1.0f);
    const float *const share = b->w->share;
    const size_t a_row = b->a.row, row = b->row, count = b->count;
    const size_t all_tokens = count + LA_BEYOND(b);
    const int logs = b->x->gates->logs, reads = b->reads, keeps = b->keeps;
    la_vec high = one, low = one, last = one;
    int usual = 1;
    size_t t, i;
    for (i = 0; i < end - f; i += LA_W) {
        const size_t at = f - b->f0 + i;
        const float *const a_at = b->a.at + at;
        float *const to = b->a_made + at;
        const int lanes = la_lanes_left(end, f + i), more = LA_W > 1 && b->f1 - (f + i) > 16;
        la_vec left = la_load(b->credit + f + i), all = la_load(b->kept + f + i);
        la_vec due = la_rule_row_owed(b->s.e + f + i);
        for (t = 0; t < all_tokens; t++) {
            la_vec a = la_load_part(a_at + t * a_row, lanes);
            if (more) LINATTN__FETCH_NEAR(a_at + t * a_row + 16);
            if (logs) a = la_exp_full(a);
            if (lanes < LA_W) a = la_first(a, one, lanes);
            due = la_mul(due, a);
            la_store(to + t * row, due);
            if (t == count) break;
            last = due;
            high = la_max(due, high);
            low = la_min(due, low);
            if (reads) left = la_mul(left, la_set1(share[t]));
            if (keeps) all = la_normal(la_mul(all, a));
        }
        la_store(credit + i, left);
        la_store(kept + i, all);
        if (la_any(la_unordered(last))) usual = 0; /* NaN stays */
    }
    if (usual && !la_any(la_gt(one, low)) && !la_any(la_gt(high, la_set1(LINATTN__ROWS_MOST))))
        return 1;
    return la_rule_due_tokens(b, f, end, credit, kept);
}
#endif

/* Keys, queries and what goes with them, as what is stored of their rows meets them: of a vector of
   rows, over a block's tokens. */
LINATTN__INLINE void la_rule_weigh_most(const la_rule *b, size_t at, int lanes)
{
    const la_vec most = la_set1(LINATTN__ROWS_MOST);
    const uint16_t *const pays = b->w->pays;
    const size_t row = b->row, count = b->count, all_tokens = count + LA_BEYOND(b);
    const size_t k_row = b->k.row, q_row = b->q.row, r_row = b->r.row, p_row = b->p.row;
    const int general = b->rule == LINATTN_RULE_GENERAL, before = b->before, reads = b->reads;
    const int group = (int)(at / LA_OWED_ROWS);
    const float *const a_at = b->a_made + at, *const k_at = b->k.at + at;
    const float *const q_at = b->out && b->kind != LA_READ ? b->q.at + at : NULL;
    const float *const r_at = general ? b->r.at + at : NULL;
    const float *const p_at = general ? b->p.at + at : NULL;
    float *const k_to = b->k_made + at, *const q_to = b->q_made + at;
    float *const r_to = reads ? b->r_made + at : NULL;
    float *const p_to = general ? b->write_made + at : NULL;
    la_vec owed = la_rule_row_owed(b->s.e + b->f0 + at);
    size_t t;
    for (t = 0; t < all_tokens; t++) {
        const la_vec before_it = owed, k = la_load_part(k_at + t * k_row, lanes);
        la_vec due = la_load(a_at + t * row), by;
        const int paying = t < count && (pays[t] >> group & 1);
        owed = due;
        if (paying) {
            due = la_mul(due, most);
            owed = most;
        }
        if (general)
            la_store(r_to + t * row, la_mul(la_load_part(r_at + t * r_row, lanes), before_it));
        else if (reads)
            la_store(r_to + t * row, la_mul(k, due));
        if (t == count) {
            owed = before_it;
            break;
        }
        by = la_reciprocal(owed);
        la_store(k_to + t * row, la_mul(k, by));
        if (general) la_store(p_to + t * row, la_mul(la_load_part(p_at + t * p_row, lanes), by));
        if (q_at)
            la_store(q_to + t * row,
                     la_mul(la_load_part(q_at + t * q_row, lanes), before ? before_it : owed));
    }
    la_store_part(b->s.e + b->f0 + at, owed, lanes);
}

/* The same where there are queries and none of the rows pays. */
LINATTN__INLINE void la_rule_weigh(const la_rule *b, size_t at, const int general, const int reads,
                                   const int before)
{
    const size_t row = b->row, k_row = b->k.row, q_row = b->q.row, r_row = b->r.row;
    const size_t p_row = b->p.row;
    const float *const a = b->a_made + at, *const k = b->k.at + at, *const q = b->q.at + at;
    const float *const r = general ? b->r.at + at : NULL, *const p = general ? b->p.at + at : NULL;
    float *const k_to = b->k_made + at, *const q_to = b->q_made + at;
    float *const r_to = reads ? b->r_made + at : NULL;
    float *const p_to = general ? b->write_made + at : NULL;
    la_vec owed = la_rule_row_owed(b->s.e + b->f0 + at);
    size_t t;
    for (t = 0; t < b->count; t++) {
        const la_vec due = la_load(a + t * row), x = la_load(k + t * k_row);
        const la_vec by = la_reciprocal(due);
        if (general)
            la_store(r_to + t * row, la_mul(la_load(r + t * r_row), owed));
        else if (reads)
            la_store(r_to + t * row, la_mul(x, due));
        la_store(k_to + t * row, la_mul(x, by));
        if (general) la_store(p_to + t * row, la_mul(la_load(p + t * p_row), by));
        la_store(q_to + t * row, la_mul(la_load(q + t * q_row), before ? owed : due));
        owed = due;
    }
    if (reads && LA_BEYOND(b)) {
        if (general)
            la_store(r_to + t * row, la_mul(la_load(r + t * r_row), owed));
        else
            la_store(r_to + t * row, la_mul(la_load(k + t * k_row), la_load(a + t * row)));
    }
    la_store(b->s.e + b->f0 + at, owed);
}

static LINATTN__NOINLINE void la_rule_weigh_rows(const la_rule *b, size_t f, size_t end)
{
    const uint16_t *const pays = b->w->pays;
    int usual = LA_W > 1 && b->out && b->kind != LA_READ;
    size_t t;
    for (t = 0; t < b->count; t++)
        if (pays[t] >> (f - b->f0) / LA_OWED_ROWS & 1) usual = 0;
    for (; f < end; f += LA_W) {
        if (!usual || end - f < LA_W)
            la_rule_weigh_most(b, f - b->f0, la_lanes_left(end, f));
        else if (b->rule == LINATTN_RULE_GENERAL)
            la_rule_weigh(b, f - b->f0, 1, 1, 0);
        else if (b->reads)
            la_rule_weigh(b, f - b->f0, 0, 1, 0);
        else if (b->before)
            la_rule_weigh(b, f - b->f0, 0, 0, 1);
        else
            la_rule_weigh(b, f - b->f0, 0, 0, 0);
    }
}

#if LA_COLD
#if LA_WALK
/* One token of at most 16 rows, for all numbers. Returns flags of those whose credit is spent: of
   all, so that they are not looked at one by one, but for those that decay so fast that they would
   be all the time. */
LINATTN__COLD static LINATTN__NOINLINE unsigned la_rule_spend_rows(float *credit, const float *a,
                                                                   float share, size_t count)
{
    unsigned flags = 0;
    int all = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        const float by = a[i] * share;
        if (!la_rule_spends(credit + i, by)) continue;
        flags |= 1u << i;
        all |= by > LINATTN__FAST;
    }
    for (i = 0; all && i < count; i++) credit[i] = la_rule_afresh(a[i] * share);
    return all ? 0xffffu : flags;
}
#endif

/* The same for all of them, token by token. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_spend(la_rule *b, size_t f)
{
    const la_vec one = la_set1(1.0f);
    const size_t end = b->f1 - f < 16 ? b->f1 : f + 16, groups = (b->f1 - b->f0 + 15) / 16;
    const int keeps = b->keeps;
    size_t t, i;
    for (t = 0; t < b->count; t++) {
        const float *const a =
            (b->a_made ? b->a_made + t * b->row : b->a.at + t * b->a.row) + (f - b->f0);
        la_vec left[LA_PANEL_VECS];
        int usual = 1;
        for (i = f; i < end; i += LA_W) {
            const int lanes = la_lanes_left(end, i);
            const la_vec by = la_mul(la_load_part(a + (i - f), lanes), la_set1(b->w->share[t]));
            la_vec *const at = left + (i - f) / LA_W;
            *at = la_first(la_mul(la_load(b->credit + i), by), one, lanes);
            /* neither spent nor more than 1, nor 0 or NaN */
            if (!la_between(*at, LINATTN__SPENT, 1.0f)) usual = 0;
        }
        if (!usual) {
            const unsigned flags = la_rule_spend_rows(b->credit + f, a, b->w->share[t], end - f);
            b->w->flagged[t * groups + (f - b->f0) / 16] = (uint16_t)flags;
            if (flags) b->w->any[t] = 1;
        }
        for (i = f; i < end; i += LA_W) {
            const int lanes = la_lanes_left(end, i);
            la_vec kept;
            if (usual) la_store_part(b->credit + i, left[(i - f) / LA_W], lanes);
            if (!keeps) continue;
            kept = la_mul(la_load(b->kept + i), la_load_part(a + (i - f), lanes));
            la_store_part(b->kept + i, la_normal(kept), lanes);
        }
    }
}
#endif

#if LA_COLD
/* Rows [f, end), where they decay by numbers in (0, 1] and by so little that none is spent: that is
   the rule. Else 16 at a time. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_decay(la_rule *b, size_t f, size_t end)
{
    const la_vec spent = la_set1(LINATTN__SPENT), least = la_set1(LINATTN__FLT_MIN);
    const la_vec one = la_set1(1.0f), lowest = la_set1(-LINATTN__FLT_MIN);
    const int keeps = b->keeps;
    float credit[LA_DECAY_ROWS], kept[LA_DECAY_ROWS];
    int usual;
    size_t i, g;
    usual = LA_HOT(&b->s, rule_decay_rows)(b, f, end, credit, kept);
    for (g = 0; f + g < end; g += 16) {
        int good = usual;
        for (i = g; i < g + 16 && f + i < end; i += LA_W) {
            const la_vec x = la_load(kept + i), before = la_load(b->kept + f + i);
            la_vec bad = la_select(la_gt(la_load(credit + i), spent), la_zero(), one);
            if (keeps) { /* below zero, too, where a decay was */
                la_vec below = la_select(la_gt(least, x), one, bad);
                below = la_select(la_gt(x, lowest), below, bad);
                bad = la_select(la_gt(la_zero(), before), below,
                                la_select(la_gt(before, la_zero()), below, bad));
            }
            bad = la_first(bad, la_zero(), la_lanes_left(end, f + i));
            if (la_any(la_gt(bad, la_zero()))) good = 0;
        }
        if (!good) la_rule_spend(b, f + g);
        for (i = g; good && i < g + 16 && f + i < end; i += LA_W) {
            const int lanes = la_lanes_left(end, f + i);
            la_store_part(b->credit + f + i, la_load(credit + i), lanes);
            if (keeps) la_store_part(b->kept + f + i, la_load(kept + i), lanes);
        }
    }
}

/* The decays of each row, and what becomes small of what they decay. */
static LINATTN__NOINLINE void la_rule_decays(la_rule *b)
{
    const size_t groups = (b->f1 - b->f0 + 15) / 16;
    size_t t, f;
    for (t = 0; t < b->count * groups; t++) b->w->flagged[t] = 0;
    for (t = 0; t < b->count; t++) b->w->any[t] = 0;
    for (f = b->f0; f < b->f1; f += LA_DECAY_ROWS)
        la_rule_decay(b, f, b->f1 - f < LA_DECAY_ROWS ? b->f1 : f + LA_DECAY_ROWS);
    if (!b->a_made) return;
    b->a.at = b->a_made;
    b->a.row = b->row;
}

/* The decays of a block of one token once more. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_factors(la_rule *b)
{
    const size_t count = b->f1 - b->f0;
    if (!b->a_made) return;
    linattn__copy(b->a_made, b->a.at, count * sizeof(float));
    la_rule_powers(b->a_made, count);
    b->a.at = b->a_made;
}
#endif

#if LA_COLD
/* Rows [f, end) are multiplied by 1 before those tokens that they do not pay before: of all tokens,
   or those before which others pay. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_ones(const la_rule *b, size_t f, size_t end,
                                                         int all)
{
    const size_t at = f - b->f0;
    size_t t, i;
    for (t = 0; t < b->count; t++) {
        float *const to = b->a_made + t * b->row + at;
        if ((b->w->pays[t] >> at / LA_OWED_ROWS & 1) || (!all && !b->w->pays[t])) continue;
        for (i = 0; i < end - f; i += LA_W) la_store(to + i, la_set1(1.0f));
    }
}

/* The decays of each row of a block, which sums are to owe: operands become what meets what is
   stored, and rows that pay get their factors. As la_rule_decays for those. */
static LINATTN__NOINLINE void la_rule_owe_each(la_rule *b)
{
    const la_vec one = la_set1(1.0f);
    const size_t groups = (b->f1 - b->f0 + 15) / 16;
    const int keeps = b->keeps;
    size_t t, f, end, i;
    for (t = 0; t < b->count * groups; t++) b->w->flagged[t] = 0;
    for (t = 0; t < b->count; t++) b->w->any[t] = 0;
    for (t = 0; t < b->count; t++) b->w->pays[t] = 0;
    for (f = b->f0; f < b->f1; f = end) {
        float credit[LA_OWED_ROWS], kept[LA_OWED_ROWS];
        int good;
        end = b->f1 - f < LA_OWED_ROWS ? b->f1 : f + LA_OWED_ROWS;
        good = LA_HOT(&b->s, rule_due_rows)(b, f, end, credit, kept);
        LA_HOT(&b->s, rule_weigh_rows)(b, f, end);
        for (i = 0; i < end - f; i += LA_W) {
            const int lanes = la_lanes_left(end, f + i);
            const la_vec left = la_first(la_load(credit + i), one, lanes);
            if (keeps) la_store_part(b->kept + f + i, la_load(kept + i), lanes);
            if (!la_between(left, LINATTN__SPENT, 1.0f)) good = 0;
        }
        if (good) {
            for (i = 0; i < end - f; i += LA_W)
                la_store_part(b->credit + f + i, la_load(credit + i), la_lanes_left(end, f + i));
            continue;
        }
        la_rule_ones(b, f, end, 1);
        b->keeps = 0;
        for (; f < end; f += 16) la_rule_spend(b, f);
        b->keeps = keeps;
    }
    for (f = b->f0; f < b->f1; f = end) {
        end = b->f1 - f < LA_OWED_ROWS ? b->f1 : f + LA_OWED_ROWS;
        la_rule_ones(b, f, end, 0);
    }
}

/* The same for what has been owed by now, of a block of one token whose rows have paid. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_owed_each(la_rule *b)
{
    size_t f, end, i;
    b->w->pays[0] = 0;
    for (f = b->f0; f < b->f1; f = end) {
        end = b->f1 - f < LA_OWED_ROWS ? b->f1 : f + LA_OWED_ROWS;
        for (i = 0; i < end - f; i += LA_W)
            la_store(b->a_made + (f - b->f0) + i, la_rule_row_owed(b->s.e + f + i));
        LA_HOT(&b->s, rule_weigh_rows)(b, f, end);
    }
}

/* What rows have become. */
LINATTN__INLINE void la_rule_weighed(la_rule *b)
{
    b->k.at = b->k_made;
    b->q.at = b->out ? b->q_made : b->k_made;
    b->k.row = b->q.row = b->row;
    b->a.at = b->a_made;
    b->a.row = b->row;
    if (b->reads) {
        b->r.at = b->r_made;
        b->r.row = b->row;
    }
    if (b->rule != LINATTN_RULE_GENERAL) return;
    b->p.at = b->write_made;
    b->p.row = b->row;
}

/* Queries that read rows which owe. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_weigh_queries(la_rule *b)
{
    size_t t, f;
    for (t = 0; t < b->count; t++)
        for (f = b->f0; f < b->f1; f += LA_W) {
            const size_t at = f - b->f0;
            const la_vec q = la_load_part(b->q.at + t * b->q.row + at, la_lanes_left(b->f1, f));
            la_store(b->q_made + t * b->row + at, la_mul(q, la_rule_row_owed(b->s.e + f)));
        }
    b->q.at = b->q_made;
    b->q.row = b->row;
}
#endif

/* Of q (u k), over 16 virtual lanes. */
static LINATTN__NOINLINE void la_rule_lanes(const float *u, const float *k, const float *q,
                                            size_t count, float *to)
{
    la_vec sum[LA_PANEL_VECS];
    size_t f, j;
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++) sum[j] = la_load(to + j * LA_W);
    for (f = 0; f < count; f += 16) {
        LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++)
        {
            const size_t at = f + j * LA_W;
            if (at < count) {
                const int lanes = la_lanes_left(count, at);
                const la_vec uk = la_mul(la_load_part(u + at, lanes), la_load_part(k + at, lanes));
                sum[j] = la_fma(la_load_part(q + at, lanes), uk, sum[j]);
            }
        }
    }
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++) la_store(to + j * LA_W, sum[j]);
}

/* r = a k, of the gated delta rule where all rows share their decays. */
static LINATTN__NOINLINE void la_rule_reads(la_rule *b)
{
    const size_t rows = b->f1 - b->f0, whole = rows / LA_W * LA_W;
    const int lanes = (int)(rows - whole);
    size_t t, f;
    for (t = 0; t < b->count + LA_BEYOND(b); t++) {
        const float *const k = b->k.at + t * b->k.row;
        float *const r = b->r_made + t * b->row;
        const la_vec a = la_set1(b->w->decay[t]);
        for (f = 0; f < whole; f += LA_W) la_store(r + f, la_mul(a, la_load(k + f)));
        if (lanes) la_store(r + f, la_mul(a, la_load_part(k + f, lanes)));
    }
}

/* As what map z is summed: mLSTM's needs no low parts. */
LINATTN__INLINE int la_rule_z_map(const la_rule *b)
{
    return b->rule == LINATTN_RULE_MLSTM ? LINATTN__MAP_POSITIVE : b->s.params->map;
}

/* z, decayed. */
LINATTN__INLINE la_vec la_rule_decayed(la_vec z, la_vec a)
{
    const la_vec y = la_normal(la_mul(a, z));
    return la_select(la_eq(a, la_set1(1.0f)), z, y);
}

/* NR vectors of features from f: z follows the keys, if there are any, and denominators gather over
   16 virtual lanes. */
LINATTN__INLINE void la_rule_normalise_rows(la_rule *b, size_t f, int lanes, int keys, int queries,
                                            const int map, const size_t NR)
{
    const int mlstm = b->rule == LINATTN_RULE_MLSTM;
    /* products are rounded so that clang's -ffast-math cannot contract them with the sums that they
       go into, as it does whatever the pragmas say */
    const volatile float minus = -0.0f;
    const la_vec none = la_set1(minus);
    const size_t at = f - b->f0;
    la_vec z[4], low[4];
    size_t t, j;
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        z[j] = la_load(b->s.z + f + j * LA_W);
        low[j] = la_load(b->s.e + f + j * LA_W);
    }
    for (t = 0; t < b->count; t++) {
        float *const den = b->w->den + t * 16, *const lost = b->w->lost + t * 16;
        if (keys) {
            const float *const k = b->k.at + t * b->k.row + at;
            la_vec a = la_set1(b->w->decay[t]);
            LINATTN__UNROLL for (j = 0; j < NR; j++)
            {
                la_vec phi = la_load_part(k + j * LA_W, lanes);
                if (b->a_step) a = la_load_part(b->a.at + t * b->a.row + at + j * LA_W, lanes);
                z[j] = la_rule_decayed(z[j], a);
                if (LINATTN__IS_SIGNED(map)) low[j] = la_fma(a, low[j], none);
                if (mlstm) phi = la_fma(la_set1(b->w->gain[t]), phi, none);
                z[j] = la_add_key(z[j], phi, &low[j], map);
            }
        }
        if (queries) {
            const float *const q = b->q.at + t * b->q.row + at;
            LINATTN__UNROLL for (j = 0; j < NR; j++)
            {
                const size_t i = (f + j * LA_W) % 16;
                la_vec sum = la_load(den + i), rest = la_load(lost + i);
                (void)la_weigh_query(la_load_part(q + j * LA_W, lanes), z[j], low[j], &sum, &rest,
                                     map, 0);
                la_store(den + i, sum);
                if (LINATTN__IS_SIGNED(map)) la_store(lost + i, rest);
            }
        }
    }
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        if (keys) la_store_part(b->s.z + f + j * LA_W, z[j], lanes);
        if (keys && LINATTN__IS_SIGNED(map)) la_store_part(b->s.e + f + j * LA_W, low[j], lanes);
    }
}

/* Four vectors side by side where that is usual, as every token waits for the one before it. */
static LINATTN__NOINLINE void la_rule_normalise(la_rule *b, int keys, int queries)
{
    const int map = la_rule_z_map(b);
    size_t f = b->f0;
#if LA_W > 1
    for (; !LINATTN__IS_SIGNED(map) && b->f1 - f >= 4 * LA_W; f += 4 * LA_W)
        la_rule_normalise_rows(b, f, LA_W, keys, queries, LINATTN__MAP_POSITIVE, 4);
#endif
    for (; f < b->f1; f += LA_W)
        la_rule_normalise_rows(b, f, la_lanes_left(b->f1, f), keys, queries, map, 1);
}

#if LA_COLD
/* What a bonus adds: the value times that. */
static LINATTN__NOINLINE void la_rule_lead(la_rule *b)
{
    const float *const u = b->gate[LINATTN__BONUS] + b->f0, *k = b->k.at, *q = b->q.at;
    size_t t;
    for (t = 0; t < b->count; t++, k += b->k.row, q += b->q.row) {
        float *const lanes = b->w->lanes + t * 16;
        LA_HOT(&b->s, rule_lanes)(u, k, q, b->f1 - b->f0, lanes);
        if (b->last) b->w->lead[t] = la_denominator(lanes);
    }
}

/* Features [f0, f1) of the block: exponents and peaks of the exponential map, */
LINATTN__COLD static void la_rule_exponents(la_rule *b, const float *key)
{
    if (key) {
        const int logs = b->per_feature && b->x->gates->logs;
        const float *decay = b->per_feature ? b->gate[LINATTN__DECAY] : b->w->decay;
        if (b->per_feature) decay += b->t0 * b->x->gates->gate[LINATTN__DECAY].token + b->f0;
        if (b->before) decay = NULL; /* which queries come before */
        if (!b->settled)
            linattn__lower(&b->s, LINATTN__PAST(b), b->f0, b->f1, decay, b->a_step, logs);
        la_settle(&b->s, b->f0, b->f1, key + b->f0);
    }
    if (b->out) {
        const float before = b->w->top[0];
        float peak, factor[2];
        size_t i;
        la_peak(&b->s, b->query + b->f0, 0, 1, b->f0, b->f1, &peak);
        la_raise(&b->s, b->w->top, &peak, b->first, b->w->den, b->out);
        if (b->first || !b->before || !(b->w->top[0] > before)) return;
        linattn__two_factors(before > -LINATTN__INF ? before - b->w->top[0] : 0.0f, factor);
        for (i = 0; i < 16; i++) b->w->lanes[i] = linattn__rescale(b->w->lanes[i], factor);
    }
}

/* the keys with all that goes with them, */
static void la_rule_keys(la_rule *b)
{
    const linattn__gating *const g = b->x->gates;
    const size_t k_token = b->s.k_token;
    const float *const key = b->s.k + b->t0 * k_token;
    b->k.at = key + b->f0;
    b->k.row = k_token;
    if (!b->in_place) {
        b->count += LA_BEYOND(b);
        LA_HOT(&b->s, rule_map)(b, key, k_token, b->k_made, 1);
        b->count -= LA_BEYOND(b);
        b->k.at = b->k_made;
        b->k.row = b->row;
    }
    b->a.at = b->w->factor;
    b->a.row = 1;
    if (b->per_feature) {
        b->a.row = g->gate[LINATTN__DECAY].token;
        b->a.at = b->gate[LINATTN__DECAY] + b->t0 * b->a.row + b->f0;
    }
    b->r = b->k;
    if (b->rule == LINATTN_RULE_GENERAL) {
        b->r.row = g->gate[LINATTN__READ].token;
        b->r.at = b->gate[LINATTN__READ] + b->t0 * b->r.row + b->f0;
        b->p.row = g->gate[LINATTN__WRITE].token;
        b->p.at = b->gate[LINATTN__WRITE] + b->t0 * b->p.row + b->f0;
    }
}

/* and the queries. */
static void la_rule_queries(la_rule *b)
{
    b->q.at = b->query + b->f0;
    b->q.row = b->s.q_token;
    if (b->in_place) return;
    LA_HOT(&b->s, rule_map)(b, b->query, b->s.q_token, b->q_made, 0);
    b->q.at = b->q_made;
    b->q.row = b->row;
}

/* *scale = the factor of mLSTM's output of token t: 1 / max(|z^T q s|, 1), with sums that are
   stored times 2^-E. */
static void la_rule_floor(const la_rule *b, size_t t, float *scale)
{
    const float e = b->w->top[t];
    float den = la_denominator(b->w->den + t * 16), least = 1.0f / b->s.params->rest;
    if (den < 0.0f) den = 0.0f - den;
    la_rule_ldexp(&least, -e);
    if (least < LINATTN__FLT_MIN) least = LINATTN__FLT_MIN;
    if (least > 8.507059e37f) least = LINATTN__INF; /* 2^126 */
    if (den > least) least = den;
    *scale = 1.0f / least;
    if (!(e > LINATTN__LOWEST)) *scale = 0.0f;          /* nothing yet */
    if (!(den <= LINATTN__FLT_MAX)) *scale = den - den; /* NaN */
}

/* What is owed joins the factor of an output, which may be near the end of what floats hold. */
LINATTN__INLINE void la_rule_scale(float *scale, float owed)
{
    if (owed != 1.0f) *scale = linattn__clamp(*scale * owed);
}

/* The factors of the block's outputs, once the denominators are complete. seen: tokens that the
   first query has seen. */
static LINATTN__NOINLINE void la_rule_finish(la_rule *b, uint64_t seen, size_t each)
{
    const linattn__params *const p = b->s.params;
    const int none = p->norm == LINATTN_NORM_NONE && !LINATTN__IS_EXP(p->map);
    la_tokens *const w = b->w;
    size_t t;
    for (t = 0; t < b->count; t += LA_W) {
        la_store(w->power + t, la_zero());
        la_store(w->scale + t, la_set1(p->rest));
    }
    if (none && b->rule != LINATTN_RULE_MLSTM) {
        for (t = 0; t < b->count; t++) w->scale[t] = p->rest * w->owed[t];
        return;
    }
#if LINATTN__HAS_SIGNED
    if (la_cancelled_factor(p)) { /* not under MLSTM */
        la_cancel(w->den, w->lost, p->epsilon, w->scale, b->count);
        for (t = 0; t < b->count; t++) la_rule_scale(w->scale + t, w->owed[t]);
        return;
    }
#endif
    for (t = 0; t < b->count; t++) {
        if (b->rule == LINATTN_RULE_MLSTM)
            la_rule_floor(b, t, w->scale + t);
        else
            la_factor(&b->s, b->query + t * b->s.q_token, w->den + t * 16, w->lost + t * 16,
                      w->top + t, seen + t * each, w->scale + t, w->power + t);
        if (LINATTN__RAISES(LINATTN__ELEMENT(&b->s), p->map))
            w->scale[t] = w->scale[t] * LINATTN__LOWERED;
        la_rule_scale(w->scale + t, w->owed[t]);
    }
}

/* Columns beyond dv are zero, whatever gates and keys held. */
static LINATTN__NOINLINE void la_rule_padding(const linattn__span *s, float *sums)
{
    const size_t dv = s->dv % 16;
    float *row = sums + s->dv / 16 * 16 * s->m;
    size_t f, c;
#if LINATTN__HAS_HALF
    if (s->element) {
        linattn__clear_halves(s);
        return;
    }
#endif
    for (f = 0; LA_W > 1 && dv && f < s->m; f++, row += 16)
        for (c = dv / LA_W * LA_W; c < 16; c += LA_W)
            la_store(row + c, la_first(la_load(row + c), la_zero(), dv > c ? (int)(dv - c) : 0));
}

#if LINATTN__HAS_COMPENSATED
/* (hi + lo) *= a + a_lo, to some 46 bits; nothing where it is below FLT_MIN. */
LINATTN__INLINE void la_times(la_vec *hi, la_vec *lo, la_vec a, la_vec a_lo)
{
    const la_vec y = la_mul(*hi, a), error = la_fma(*hi, a_lo, la_fms(*hi, a, y));
    const la_vec rest = la_fma(*lo, a, error), sum = la_add(y, rest);
    *lo = la_add(la_sub(y, sum), rest); /* never -0: compilers may differ about that of rest */
    *hi = la_normal(sum);
    *lo = la_select(la_eq(*hi, la_zero()), la_zero(), *lo);
}

/* What the past has decayed by since it was folded follows the tokens, if these have keys; and the
   weights of queries for its rows, and what it adds to their denominators. Token by token, as rows
   do not wait for one another; nor are there many with moving exponents. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_past(la_rule *b, int keys)
{
    const size_t m16 = linattn__round16(b->s.m), f1 = b->f1, f0 = b->f0;
    const float *const z_past = b->since - 2 * m16;
    const int map = la_rule_z_map(b), normal = b->normal, after = keys && b->before;
    const int before = keys && !b->before, step = b->a_step != 0, out = b->out != NULL;
    float *const since = b->since;
    size_t t, f;
    for (t = 0; t < b->count; t++) {
        float *const den_at = b->w->den + t * 16, *const lost_at = b->w->lost + t * 16;
        const float *const q = b->q.at + t * b->q.row;
        const float *const by = keys ? b->a.at + t * b->a.row : q;
        float *const to = b->p_made + t * b->row;
        la_vec a = la_set1(b->w->decay[t]), shift = la_set1(1.0f);
        for (f = f0; f < f1; f += LA_W) {
            const int lanes = la_lanes_left(f1, f);
            const size_t at = f - f0;
            la_vec hi = la_load(since + f), lo = la_load(since + m16 + f);
            if (LINATTN__IS_EXP(map)) {
                float shifts[LA_W];
                linattn__past_shifts(b->s.s + b->past + f - m16, b->s.e + f, shifts, LA_W);
                shift = la_load(shifts);
            }
            if (keys && step) a = la_load_part(by + at, lanes);
            if (before) la_times(&hi, &lo, a, la_zero());
            if (out) {
                la_vec y = la_mul(la_load_part(q + at, lanes), la_mul(hi, shift));
                y = la_normal(y);
                /* what is behind the last row may have grown beyond floats */
                if (lanes < LA_W) y = la_first(y, la_zero(), lanes);
                la_store(to + at, y);
                if (normal) {
                    la_vec den = la_load(den_at + f % 16), lost = la_load(lost_at + f % 16);
                    (void)la_weigh_query(y, la_load(z_past + f), la_zero(), &den, &lost, map, 0);
                    la_store(den_at + f % 16, den);
                    la_store(lost_at + f % 16, lost);
                }
            }
            if (after) la_times(&hi, &lo, a, la_zero());
            if (!keys) continue;
            la_store_part(since + f, hi, lanes);
            la_store_part(since + m16 + f, lo, lanes);
        }
    }
}

/* Moves sums to their past, which has decayed by hi + lo: they keep what that loses, and low. */
LINATTN__INLINE void la_rule_fold_vector(float *past, float *sums, la_vec low, la_vec hi, la_vec lo)
{
    const la_vec least = la_set1(1.9721523e-31f); /* 2^-102: or what a product loses is denormal */
    const la_vec before = la_load(past), y = la_mul(before, hi);
    const la_vec left = la_select(la_eq(hi, la_set1(1.0f)), y, la_flush(y, least));
    la_vec lost = la_fma(before, lo, la_fms(before, hi, y));
    lost = la_add(la_select(la_eq(left, y), lost, la_zero()), low);
    la_fold_vector(past, sums, left, lost);
}

/* One head. */
LINATTN__COLD static void la_rule_fold(const linattn__span *s)
{
    const size_t m16 = linattn__round16(s->m), panels = (s->dv + 15) / 16;
    float *const z = s->z + s->past, *const since = z + 2 * m16;
    float *const kept = s->z + 2 * m16, *const kept_low = z + m16;
    const int exponents = LINATTN__IS_EXP(s->params->map);
    size_t f, c, i;
    for (f = 0; exponents && f < m16; f++) linattn__settle_past(s, f);
    for (f = 0; f < m16; f += LA_W) {
        la_vec all = la_load(kept + f), all_low = la_load(kept_low + f), low = la_zero();
        if (!exponents) {
            la_times(&all, &all_low, la_load(since + f), la_load(since + m16 + f));
            la_store(kept + f, all);
            la_store(kept_low + f, all_low);
            low = la_load(s->e + f);
            la_store(s->e + f, la_zero());
        }
        la_rule_fold_vector(z + f, s->z + f, low, la_load(since + f), la_load(since + m16 + f));
    }
    for (c = 0; c < panels; c++)
        for (f = 0; f < s->m; f++) {
            const la_vec hi = la_set1(since[f]), lo = la_set1(since[m16 + f]);
            float *const row = s->s + (c * s->m + f) * 16;
            for (i = 0; i < 16 && c * 16 + i < s->dv; i += LA_W)
                la_rule_fold_vector(row + s->past + i, row + i, la_zero(), hi, lo);
        }
    la_rule_padding(s, s->s);
    la_rule_padding(s, s->s + s->past);
    for (f = 0; f < m16; f++) {
        since[f] = 1.0f;
        since[m16 + f] = 0.0f;
    }
}
#endif
#endif

/* ---- Recurrences: tiles ---------------------------------------------------------------------- */

/* Flushes columns [c, end) of `count` rows of s, those that are flagged: what might become denormal
   before they are looked at again and, where `decays`, what their decays a would make so. m: rows
   of a panel; flagged: NULL: all. */
static LINATTN__NOINLINE void la_rule_flush_rows(float *s, size_t m, size_t count, const float *a,
                                                 size_t a_step, const uint16_t *flagged, size_t c,
                                                 size_t end, int decays)
{
    size_t f, g, j;
    for (g = 0; 16 * g < count; g++) {
        const unsigned flags = flagged ? flagged[g] : 0xffffu;
        for (f = 16 * g; flags >> (f - 16 * g) && f < count && f < 16 * (g + 1); f++) {
            const float by = a[f * a_step];
            float least = LINATTN__FLUSHED;
            if (!(flags >> (f - 16 * g) & 1)) continue;
            if (decays && by > 0.0f && by < LINATTN__SPENT) least = LINATTN__FLT_MIN / by;
            for (j = c; j < end; j += LA_W) {
                float *const at = s + (j / 16 * m + f) * 16 + j % 16;
                la_store(at, la_flush(la_load(at), la_set1(least)));
            }
        }
    }
}

#if LA_COLD
/* Rows [f, end) of this job's columns are multiplied. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_pay_rows(const la_rule *b, size_t f, size_t end,
                                                             const float *by)
{
    const size_t m = b->s.m, last = (b->s.column_end + LA_W - 1) / LA_W * LA_W;
    size_t c;
    for (; f < end; f++, by++)
        for (c = b->s.column_begin; c < last; c += LA_W) {
            float *const at = b->s.s + (c / 16 * m + f) * 16 + c % 16;
            la_store(at, la_mul(la_load(at), la_set1(*by)));
        }
}

/* Those of a tile's columns that are flagged before token t. */
static LINATTN__NOINLINE void la_rule_flush(const la_rule *b, size_t t, size_t c, size_t end,
                                            int decays)
{
    const size_t count = b->f1 - b->f0, groups = (count + 15) / 16;
    const uint16_t *const flagged = b->w->any[t] == LA_ALL ? NULL : b->w->flagged + t * groups;
    const float *const a = b->a.at + t * b->a.row;
    float *const s = b->s.s + b->f0 * 16;
    LA_HOT(b, rule_flush_rows)(s, b->s.m, count, a, b->a_step, flagged, c, end, decays);
}
#endif

#if LA_W > 1
/* The share, by columns, of NR vectors from u in what is fetched. */
static LINATTN__NOINLINE void la_rule_share(const la_rule *b, size_t u, size_t NR)
{
    const size_t c = u * LA_W - b->s.column_begin;
    const int others = b->x->next != NULL, last = others || b->t0 + b->count >= b->s.n;
    linattn__share_ahead(last ? &b->after : &b->ahead, c * b->fetch / 16,
                         b->first ? (c + NR * LA_W) * b->fetch / 16 : 0, &b->w->ahead);
    b->w->ahead_less = last ? (others ? b->count : b->s.n) - b->after_begin : 0;
    b->w->ahead_end = last ? b->after_end : b->s.n;
}
#endif

/* For `some` tokens from t a tile fetches its share of what those of the next block bring. Hardware
   alone does not keep up with streams that take turns, strided ones least, nor with all of a block
   while its first tile is at work. */
LINATTN__INLINE void la_rule_fetch(const la_rule *b, size_t t, size_t some)
{
#if LA_W > 1
    const size_t next = b->t0 + b->count + t - b->w->ahead_less, end = next + some;
    const size_t n = b->w->ahead_end;
    if (b->s.fetch && next < n) linattn__fetch_lines(&b->w->ahead, next, end < n ? end : n);
#else
    (void)b;
    (void)t;
    (void)some;
#endif
}

/* What precedes token t in a tile. */
static LINATTN__NOINLINE void la_rule_prepare(const la_rule *b, size_t t, size_t u, size_t NR)
{
    la_rule_fetch(b, t, 1);
    if (b->w->any[t] && b->kind != LA_BEFORE)
        la_rule_flush(b, t, u * LA_W, (u + NR) * LA_W, b->kind != LA_GENERAL);
}

/* Of rows of NR vectors that are not to be multiplied, are two multiplied by 1 all the same? On
   Intel's processors rows of the delta rule of four vectors of 512 bits, whose arithmetic takes six
   cycles, take 8.5 without, 7.4 with two and 8 with all; rows of three 6.2, 5.7 and 6. */
#define LA_ONES(kind, NR) (LA_W == 16 && (kind) == LA_DELTA && (NR) > 2)

/* Does each vector of a row go its whole way before the next one? So four of the delta rules, and
   all that they take and gather, fit into 16 registers: clang 19 and later would copy a third of
   these around in each row. Earlier versions need no help, and 16 would keep a sum in memory. */
#if defined(__clang_major__) && __clang_major__ < 19
#define LA_ALONG(kind, NR) 0
#else
#define LA_ALONG(kind, NR) (LA_W == 8 && (kind) == LA_DELTA && (NR) > 3)
#endif

/* Row f of a tile for a token, x[j] at at[j]. v: what k multiplies; c: what was read, which p
   multiplies; o and next gather q S and r S; one: what compilers do not know to be 1. */
LINATTN__INLINE void la_rule_row(float *const *at, size_t f, const float *a, int scales,
                                 const float *k, const float *q, const float *p, const float *r,
                                 const la_vec *v, const la_vec *c, la_vec *o, la_vec *next,
                                 la_vec one, const int kind, const size_t NR)
{
    const int reads = kind == LA_DELTA || kind == LA_GENERAL;
    const la_vec kf = la_set1(k[f]), qf = la_set1(q[f]);
    la_vec x[4];
    size_t j;
    if (LA_ALONG(kind, NR)) {
        const la_vec af = la_set1(scales ? *a : 1.0f), rf = la_set1(r[f]);
        LINATTN__UNROLL for (j = 0; j < NR; j++)
        {
            x[j] = la_load(at[j]);
            if (scales) x[j] = la_mul(af, x[j]);
            x[j] = la_fma_hot(kf, v[j], x[j]);
            la_store(at[j], x[j]);
            o[j] = la_fma_hot(qf, x[j], o[j]);
            next[j] = la_fma_hot(rf, x[j], next[j]);
        }
        return;
    }
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        x[j] = la_load(at[j]);
        if (kind == LA_BEFORE) o[j] = la_fma_hot(qf, x[j], o[j]);
    }
    if (scales) {
        const la_vec af = la_set1(*a);
        LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_mul(af, x[j]);
    } else if (LA_ONES(kind, NR)) {
        LINATTN__UNROLL for (j = 0; j < 2; j++) x[j] = la_mul(one, x[j]);
    }
    if (kind == LA_GENERAL) {
        const la_vec pf = la_set1(p[f]);
        LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_fma_hot(pf, c[j], x[j]);
    }
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        x[j] = la_fma_hot(kf, v[j], x[j]);
        la_store(at[j], x[j]);
    }
    if (kind != LA_BEFORE) {
        LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_fma_hot(qf, x[j], o[j]);
    }
    if (reads) {
        const la_vec rf = la_set1(r[f]);
        LINATTN__UNROLL for (j = 0; j < NR; j++) next[j] = la_fma_hot(rf, x[j], next[j]);
    }
}

/* The second of a tile's NR vectors from u, relative to the first: three vectors of AVX2, which are
   a panel and a half, may begin in the middle of one; the third is where la_offset says. */
LINATTN__INLINE size_t la_rule_second(const la_rule *b, size_t u, const size_t NR)
{
    return LA_W == 8 && NR == 3 && u % 2 ? 16 * b->s.m - LA_W : la_offset(b->s.m, 1);
}

/* The rows of a tile for token t; r is that of token `reader`. Most come two by two, each vector's
   by a pointer of its own: what decodes instructions has little to spare, least with a second
   thread on the core. */
LINATTN__INLINE void la_rule_rows(const la_rule *b, size_t t, size_t reader, size_t u,
                                  const la_vec *v, const la_vec *c, la_vec *o, la_vec *next,
                                  int scales, const int kind, const size_t NR)
{
    const size_t m = b->s.m, count = b->f1 - b->f0, a_step = b->a_step;
    const size_t second = la_rule_second(b, u, NR);
    const int reads = kind == LA_DELTA || kind == LA_GENERAL;
    const float *const k = b->k.at + t * b->k.row, *const q = b->q.at + t * b->q.row;
    const float *const p = kind == LA_GENERAL ? b->p.at + t * b->p.row : k;
    const float *const r = reads ? b->r.at + reader * b->r.row : k;
    const float *a = b->a.at + t * b->a.row;
    float *row = la_column(&b->s, u) + b->f0 * 16, *at[4], by = 1.0f;
    size_t f = 0, j;
    la_vec one;
    if (LA_ONES(kind, NR)) LINATTN__OPAQUE(by);
    one = la_set1(by);
#if LA_W == 16
    if (NR % 2 == 0 && reads) {
        LINATTN__UNROLL for (j = 0; j < NR; j++) at[j] = row + la_offset(m, j);
        for (;;) {
            la_rule_row(at, f, a, scales, k, q, p, r, v, c, o, next, one, kind, NR);
            if (++f == count) return;
            a += a_step;
            LINATTN__UNROLL for (j = 0; j < NR; j++) at[j] += 16;
            la_rule_row(at, f, a, scales, k, q, p, r, v, c, o, next, one, kind, NR);
            if (++f == count) return;
            a += a_step;
            LINATTN__UNROLL for (j = 0; j < NR; j++) at[j] += 16;
            LINATTN__OPAQUE(scales);
            LINATTN__OPAQUE(at[0]);
            LINATTN__OPAQUE(at[1]);
            if (NR == 2) continue;
            LINATTN__OPAQUE(at[2]);
            LINATTN__OPAQUE(at[3]);
        }
    }
#endif
    for (; f < count; f++, row += 16) {
        LINATTN__UNROLL for (j = 0; j < NR; j++) at[j] = row + (j == 1 ? second : la_offset(m, j));
        if (LA_W == 16) LINATTN__OPAQUE(scales); /* or compilers have two loops */
        la_rule_row(at, f, a, scales, k, q, p, r, v, c, o, next, one, kind, NR);
        a += a_step;
    }
}

/* The same, `plain` where rows are not multiplied: with 16 registers by code of its own, as clang
   keeps sums in memory otherwise. */
LINATTN__INLINE void la_rule_rows_of(const la_rule *b, size_t t, size_t reader, size_t u,
                                     const la_vec *v, const la_vec *c, la_vec *o, la_vec *next,
                                     int plain, const int kind, const size_t NR)
{
    if (LA_W == 1 || LA_W == 16)
        la_rule_rows(b, t, reader, u, v, c, o, next, !plain, kind, NR);
    else if (plain)
        la_rule_rows(b, t, reader, u, v, c, o, next, 0, kind, NR);
    else
        la_rule_rows(b, t, reader, u, v, c, o, next, 1, kind, NR);
}

#ifdef LA_GATED_TOKENS
/* The same for several tokens from t of a rule without reads: o holds the outputs of all. */
LINATTN__INLINE void la_rule_rows_together(const la_rule *b, size_t t, size_t u, const la_vec *v,
                                           la_vec *o, const int before, const int plain,
                                           const size_t NR)
{
    const size_t m = b->s.m, count = b->f1 - b->f0, a_step = b->a_step;
    const size_t k_row = b->k.row, q_row = b->q.row, a_row = b->a.row;
    const float *k = b->k.at + t * k_row, *q = b->q.at + t * q_row, *a = b->a.at + t * a_row;
    float *row = la_column(&b->s, u) + b->f0 * 16;
    size_t f, i, j;
    /* or clang keeps o and v in memory */
    la_vec sum[LA_GATED_TOKENS * LA_GATED_VECS], value[LA_GATED_TOKENS * LA_GATED_VECS];
    LINATTN__UNROLL for (j = 0; j < LA_GATED_TOKENS * NR; j++)
    {
        sum[j] = o[j];
        value[j] = v[j];
    }
    for (f = 0; f < count; f++, row += 16, a += a_step, k++, q++) {
        la_vec x[LA_GATED_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_load(row + la_offset(m, j));
        LINATTN__UNROLL for (i = 0; i < LA_GATED_TOKENS; i++)
        {
            const la_vec af = la_set1(plain ? 1.0f : a[i * a_row]), kf = la_set1(k[i * k_row]);
            const la_vec qf = la_set1(q[i * q_row]);
            LINATTN__UNROLL for (j = 0; j < NR; j++)
            {
                la_vec *const at = sum + i * NR + j;
                if (before) *at = la_fma_hot(qf, x[j], *at);
                if (!plain) x[j] = la_mul(af, x[j]);
                x[j] = la_fma_hot(kf, value[i * NR + j], x[j]);
                if (!before) *at = la_fma_hot(qf, x[j], *at);
            }
        }
        LINATTN__UNROLL for (j = 0; j < NR; j++) la_store(row + la_offset(m, j), x[j]);
    }
    LINATTN__UNROLL for (j = 0; j < LA_GATED_TOKENS * NR; j++) o[j] = sum[j];
}
#endif

/* sum += r S, or q S. */
LINATTN__INLINE void la_rule_read_rows(const la_rule *b, const float *r, size_t u, la_vec *sum,
                                       const size_t NR)
{
    const size_t m = b->s.m, count = b->f1 - b->f0, second = la_rule_second(b, u, NR);
    const float *row = la_column(&b->s, u) + b->f0 * 16;
    size_t f, j;
    for (f = 0; f < count; f++, row += 16) {
        const la_vec rf = la_set1(r[f]);
        LINATTN__UNROLL for (j = 0; j < NR; j++) sum[j] =
            la_fma_hot(rf, la_load(row + (j == 1 ? second : la_offset(m, j))), sum[j]);
    }
}

/* The output of token t: what it has gathered is complete with the last features. */
LINATTN__INLINE void la_rule_out(const la_rule *b, size_t t, size_t u, la_vec *o, const la_vec *v,
                                 int lanes, const size_t NR)
{
    float *const to = b->out + t * b->out_token + u * LA_W;
    size_t j;
    if (b->last && b->before && v) {
        LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_fma(la_set1(b->w->lead[t]), v[j], o[j]);
    }
    if (b->last) {
        LINATTN__UNROLL for (j = 0; j < NR; j++)
        {
            o[j] = la_mul(o[j], la_set1(b->w->scale[t]));
            if (b->signs) o[j] = la_clamp(o[j]);
        }
    }
    la_store_columns(to, o, lanes, NR);
}

/* NR vectors of columns from u that only are read, token by token: by queries, or by the keys of a
   block of one, to where the corrections gather. */
LINATTN__INLINE void la_rule_read_tile(const la_rule *b, size_t u, const size_t NR)
{
    const int lanes = la_lanes_left(b->s.dv, (u + NR - 1) * LA_W);
    size_t t, j;
    for (t = 0; t < b->count; t++) {
        la_vec o[4], v[4];
        LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_zero();
        if (!b->first) la_load_columns(o, b->out + t * b->out_token + u * LA_W, lanes, NR);
        la_rule_read_rows(b, b->q.at + t * b->q.row, u, o, NR);
        if (b->before && b->last) {
            la_load_columns(v, b->s.v + (b->t0 + t) * b->s.v_token + u * LA_W, lanes, NR);
            la_rule_out(b, t, u, o, v, lanes, NR);
        } else {
            la_rule_out(b, t, u, o, NULL, lanes, NR);
        }
    }
}

/* What k multiplies: the value times its gain, for the delta rules after what was read is taken
   away. */
LINATTN__INLINE void la_rule_values(const la_rule *b, size_t t, size_t u, const la_vec *c,
                                    la_vec *v, int lanes, const int delta, const size_t NR)
{
    size_t j;
    la_load_columns(v, b->s.v + (b->t0 + t) * b->s.v_token + u * LA_W, lanes, NR);
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        if (delta) v[j] = la_fma(la_set1(0.0f - b->w->due[t]), c[j], v[j]);
        v[j] = la_mul(la_set1(b->w->paid[t]), v[j]);
    }
}

/* Are rows not multiplied before token t? */
LINATTN__INLINE int la_rule_is_plain(const la_rule *b, size_t t)
{
    return b->each ? !b->w->pays[t] : b->owes && b->w->factor[t] == 1.0f;
}

/* NR vectors of columns from u, tokens [t, end) of the block one by one. Rows that queries read
   before they are flushed are read in a pass of their own, and what general's r reads of them is
   not to depend on the decay that follows. */
LINATTN__INLINE void la_rule_tile(const la_rule *b, size_t u, size_t t, size_t end, const size_t NR)
{
    const int lanes = la_lanes_left(b->s.dv, (u + NR - 1) * LA_W), kind = b->kind;
    const int delta = kind == LA_DELTA, here = b->reads && b->whole;
    la_vec c[4], next[4];
    size_t j;
    int fresh = here && !(LA_W > 1 && b->carried);
    LINATTN__UNROLL for (j = 0; j < NR; j++) next[j] = la_zero();
    if (b->reads && !fresh) la_load_columns(next, b->corrected + u * LA_W, LA_W, NR);
    for (; t < end; t++) {
        const int more = t + 1 < end + LA_BEYOND(b), flush = b->w->any[t];
        const int plain = la_rule_is_plain(b, t);
        const size_t reader = more ? t + 1 : t; /* without a next one for nothing */
        const int apart = kind == LA_BEFORE && flush;
        const int late = flush && (kind == LA_BEFORE || kind == LA_GENERAL);
        la_vec o[4], v[4];
        if ((flush && kind != LA_BEFORE) || b->s.fetch) la_rule_prepare(b, t, u, NR);
        LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = la_zero();
        if (b->out && !b->first)
            la_load_columns(o, b->out + t * b->out_token + u * LA_W, lanes, NR);
        if (fresh || (here && flush) || apart) { /* what is read is what is left */
            const la_rows *const by = apart ? &b->q : &b->r;
            LINATTN__UNROLL for (j = 0; j < NR; j++) next[j] = o[j];
            la_rule_read_rows(b, by->at + t * by->row, u, next, NR);
            fresh = 0;
        }
        if (late) la_rule_flush(b, t, u * LA_W, (u + NR) * LA_W, 1);
        LINATTN__UNROLL for (j = 0; j < NR; j++)
        {
            c[j] = next[j];
            next[j] = la_zero();
        }
        la_rule_values(b, t, u, c, v, lanes, delta, NR);
        if (kind == LA_BEFORE && !flush) {
            la_rule_rows_of(b, t, reader, u, v, c, o, next, plain, LA_BEFORE, NR);
        } else if (delta && more) {
            la_rule_rows_of(b, t, reader, u, v, c, o, next, plain, LA_DELTA, NR);
        } else if (NR <= LA_GENERAL_VECS && kind == LA_GENERAL) {
            la_rule_rows_of(b, t, reader, u, v, c, o, next, plain, LA_GENERAL, NR);
        } else {
            la_rule_rows_of(b, t, reader, u, v, c, o, next, plain, LA_WRITE, NR);
            if (apart) { /* here alone: clang keeps c through every loop before it */
                LINATTN__UNROLL for (j = 0; j < NR; j++) o[j] = c[j];
            }
        }
        if (b->out) la_rule_out(b, t, u, o, v, lanes, NR);
    }
    if (LA_BEYOND(b)) la_store_columns(b->corrected + u * LA_W, next, LA_W, NR);
}

#if LA_GENERAL_VECS > 1
static LINATTN__NOINLINE void la_rule_tile4(const la_rule *b, size_t u, size_t t, size_t end)
{
    la_rule_tile(b, u, t, end, 4);
}
#endif

#if LA_W > 1
static LINATTN__NOINLINE void la_rule_tile3(const la_rule *b, size_t u, size_t t, size_t end)
{
    la_rule_tile(b, u, t, end, 3);
}

static LINATTN__NOINLINE void la_rule_tile2(const la_rule *b, size_t u, size_t t, size_t end)
{
    la_rule_tile(b, u, t, end, 2);
}
#endif
static LINATTN__NOINLINE void la_rule_tile1(const la_rule *b, size_t u, size_t t, size_t end)
{
    la_rule_tile(b, u, t, end, 1);
}

#ifdef LA_GATED_TOKENS
/* How do rows go by for LA_GATED_TOKENS tokens from t? 0: one by one, 1: together, 2: together, and
   none is multiplied. */
LINATTN__INLINE int la_rule_together(const la_rule *b, size_t t)
{
    int plain = 1;
    size_t i;
    if (b->count - t < LA_GATED_TOKENS) return 0;
    for (i = t; i < t + LA_GATED_TOKENS; i++) {
        if (b->w->any[i]) return 0;
        plain &= la_rule_is_plain(b, i);
    }
    return plain ? 2 : LA_W == 16 && !b->each;
}

/* Tokens of rules without reads, several at once. */
LINATTN__INLINE void la_rule_tokens(const la_rule *b, size_t u, const size_t NR)
{
    const int lanes = la_lanes_left(b->s.dv, (u + NR - 1) * LA_W);
    size_t t, i;
    for (t = 0; t < b->count; t += LA_GATED_TOKENS) {
        la_vec o[LA_GATED_TOKENS * LA_GATED_VECS], v[LA_GATED_TOKENS * LA_GATED_VECS];
        const la_vec *const none = v;
        const int how = la_rule_together(b, t);
        if (!how) {
            const size_t some = t + LA_GATED_TOKENS, end = some < b->count ? some : b->count;
            if (NR == 4)
                la_rule_tile4(b, u, t, end);
            else if (NR == 2)
                la_rule_tile2(b, u, t, end);
            else
                la_rule_tile1(b, u, t, end);
            continue;
        }
        la_rule_fetch(b, t, LA_GATED_TOKENS);
        for (i = 0; i < LA_GATED_TOKENS; i++)
            la_rule_values(b, t + i, u, none, v + i * NR, lanes, 0, NR);
        for (i = 0; i < LA_GATED_TOKENS * NR; i++) o[i] = la_zero();
        for (i = 0; b->out && !b->first && i < LA_GATED_TOKENS; i++)
            la_load_columns(o + i * NR, b->out + (t + i) * b->out_token + u * LA_W, lanes, NR);
        if (b->before && how == 2)
            la_rule_rows_together(b, t, u, v, o, 1, 1, NR);
        else if (how == 2)
            la_rule_rows_together(b, t, u, v, o, 0, 1, NR);
        else if (b->before && LA_W == 16)
            la_rule_rows_together(b, t, u, v, o, 1, 0, NR);
        else if (LA_W == 16)
            la_rule_rows_together(b, t, u, v, o, 0, 0, NR);
        for (i = 0; b->out && i < LA_GATED_TOKENS; i++)
            la_rule_out(b, t + i, u, o + i * NR, v + i * NR, lanes, NR);
    }
}

#if LA_GATED_VECS > 2
static LINATTN__NOINLINE void la_rule_tokens4(const la_rule *b, size_t u)
{
    la_rule_tokens(b, u, 4);
}
#endif
static LINATTN__NOINLINE void la_rule_tokens2(const la_rule *b, size_t u)
{
    la_rule_tokens(b, u, 2);
}
static LINATTN__NOINLINE void la_rule_tokens1(const la_rule *b, size_t u)
{
    la_rule_tokens(b, u, 1);
}
#endif

#if LA_GENERAL_VECS > 1
static LINATTN__NOINLINE void la_rule_read4(const la_rule *b, size_t u)
{
    la_rule_read_tile(b, u, 4);
}
#endif
static LINATTN__NOINLINE void la_rule_read1(const la_rule *b, size_t u)
{
    la_rule_read_tile(b, u, 1);
}

/* Do tokens go by several at a time? With 16 registers where rows are seldom multiplied. */
LINATTN__INLINE int la_rule_several(const la_rule *b)
{
#ifdef LA_GATED_TOKENS
    return !b->reads && b->count >= LA_GATED_TOKENS && (LA_W == 16 || b->owes || b->each);
#else
    (void)b;
    return 0;
#endif
}

#if LA_W > 1
/* How many vectors of columns a tile takes where so many are left: as many as stay in L1 and in
   registers, but none is left alone, which would take as long as three, unless tokens go several at
   a time. A tile starts a panel, or stays within one, but for those of three vectors of AVX2: the
   delta rules' take 5.5 cycles a row on Zen 3, where four vectors wait for stores and take 9; but
   few rows are not worth more tiles. */
LINATTN__INLINE size_t la_rule_width(const la_rule *b, size_t left)
{
    const int apart = LA_CLASH(b->s.m, 32), rows = (int)(b->f1 - b->f0);
    const int few = b->owes || b->each || (rows > 96 && b->s.m > 192); /* L1: 32 KiB */
    const int two = LA_W == 16
                        ? apart || (rows > 192 && !linattn__near()) || (few && linattn__halved())
                        : la_rule_several(b);
    const size_t most = two ? 2 : b->kind == LA_GENERAL ? LA_GENERAL_VECS : 4;
    if (LA_CLASH(b->s.m, 64)) return 1;
    if (LA_W == 8 && rows > 32 && b->kind == LA_DELTA && linattn__contended() &&
        (b->owes || b->each))
        return left % 3 == 0 ? 3 : left < 2 ? 1 : 2; /* first those that start a panel */
    if (LA_W < 16 || b->reads) {
        if (LA_W > 4 && left == 5 && most == 4) return LA_W == 16 ? 3 : 2;
        if (left == 3 && !(LA_W == 8 ? most == 2 : apart)) return 3;
    }
    return left < most ? (left < 2 ? 1 : 2) : most;
}
#endif

#if LINATTN__HAS_HALF && LA_COLD
/* As la_rule_tile, for all tokens of the block; but nothing is flushed: what f16 and la_round leave
   is never that small. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_half(const la_rule *b, la_half *x)
{
    const size_t count = b->f1 - b->f0;
    const int reads = b->reads && b->kind != LA_READ, here = reads && b->whole;
    const int bonus = b->last && b->before;
    size_t t, j, column;
    x->a_step = b->a_step;
    x->value = x->from = x->lead = NULL;
    x->gain = b->w->gain;
    x->out = NULL;
    x->goes_on = x->corrects = x->reads = 0;
    if (here) {
        x->kind = LA_READ;
        x->q = b->r.at;
        x->step /= 2; /* half of what is to be fetched now, half later */
        LA_HOT(b, half_token)(x, count);
        x->ahead += x->step * count;
        x->had = x->o;
    }
    for (j = 0; reads && !here && j < x->width; j += LA_W) {
        const int lanes = la_half_lanes(x, j, &column);
        la_store(x->next + j, la_load_part(b->corrected + column, lanes));
    }
    x->kind = b->rule == LINATTN_RULE_DELTA && b->kind == LA_DELTA ? LA_PLAIN_DELTA : b->kind;
    x->corrects = b->kind == LA_DELTA;
    x->signs = b->last && b->signs;
    for (t = 0; t < b->count; t++) {
        x->q = b->q.at + t * b->q.row;
        if (b->kind != LA_READ) {
            x->k = b->k.at + t * b->k.row;
            x->a = b->a.at + t * b->a.row;
        }
        x->reads = here && t + 1 < b->count;
        if (x->reads) x->r = b->r.at + (t + 1) * b->r.row;
        if (b->kind == LA_GENERAL) x->p = b->p.at + t * b->p.row;
        x->gain = b->w->gain + t;
        if (b->kind != LA_READ || bonus) x->value = b->s.v + (b->t0 + t) * b->s.v_token;
        if (b->out) x->out = b->out + t * b->out_token;
        if (!b->first) x->from = x->out;
        if (bonus) x->lead = b->w->lead + t;
        x->scale = b->last ? b->w->scale + t : NULL;
        if (b->kind == LA_BEFORE) { /* reads, then writes */
            x->kind = LA_READ;
            LA_HOT(b, half_token)(x, count);
            x->kind = LA_WRITE;
            x->out = NULL;
            x->goes_on = 1;
        }
        LA_HOT(b, half_token)(x, count);
        x->goes_on = 0;
        x->had = x->next;
        x->ahead = x->rows;
    }
}

/* From a few tokens on floats pay, as to pack them takes time. */
#define LA_WIDE_TOKENS 4

LINATTN__COLD static LINATTN__NOINLINE void la_rule_halves(const la_rule *b)
{
#if LA_W > 1
    float room[LA_RULE_ROWS * 16 + 16];
#endif
    const size_t end = b->s.column_end < b->s.dv ? b->s.column_end : b->s.dv;
    const size_t count = b->f1 - b->f0;
    size_t c, width;
    la_half x;
    x.bf = b->s.element == LINATTN_BF16;
    x.width = width = LA_HALF_WIDTH(b);
    if (count * width > LA_RULE_ROWS * 16)
        width = 16; /* panels side by side, while there is room */
    for (c = b->s.column_begin; c < end; c += width) {
        la_half_open(&x, b->s.s, b->s.m, b->f0, c, end - c < width ? end : c + width);
        x.ahead = (const char *)((uintptr_t)x.ahead + b->s.ahead);
#if LA_W > 1
        if (b->count >= LA_WIDE_TOKENS) { /* by way of floats: rows are lines of the cache */
            x.rows = (char *)linattn__align(room);
            if (x.panel) x.panel = 64 * count;
            LA_HOT(b, half_copy)(&x, count, 0);
        }
#endif
        la_rule_half(b, &x);
#if LA_W > 1
        if (b->kind != LA_READ && x.rows != x.halves) LA_HOT(b, half_copy)(&x, count, 1);
#endif
    }
}
#endif

#if LA_W > 1
/* One tile, all tokens of the block. */
LINATTN__INLINE void la_rule_columns_of(const la_rule *b, size_t u, size_t width)
{
#ifdef LA_GATED_TOKENS
    if (la_rule_several(b)) {
#if LA_GATED_VECS > 2
        if (width == 4)
            la_rule_tokens4(b, u);
        else
#endif
            if (width == 2)
            la_rule_tokens2(b, u);
        else
            la_rule_tokens1(b, u);
        return;
    }
#endif
    if (width == 4)
        la_rule_tile4(b, u, 0, b->count);
    else if (width == 3)
        la_rule_tile3(b, u, 0, b->count);
    else if (width == 2)
        la_rule_tile2(b, u, 0, b->count);
    else
        la_rule_tile1(b, u, 0, b->count);
}
#endif

/* All columns of this job. */
static LINATTN__NOINLINE void la_rule_columns(const la_rule *b)
{
    const size_t end = (b->s.column_end + LA_W - 1) / LA_W;
    size_t u = b->s.column_begin / LA_W;
#if LINATTN__HAS_HALF
    if (b->s.element) {
        la_rule_halves(b);
        return;
    }
#endif
#if LA_GENERAL_VECS > 1
    for (; b->kind == LA_READ && end - u >= 4; u += 4) la_rule_read4(b, u);
#endif
    for (; b->kind == LA_READ && u < end; u++) la_rule_read1(b, u);
    while (u < end) {
#if LA_W > 1
        const size_t width = la_rule_width(b, end - u);
        if (b->s.fetch) la_rule_share(b, u, width);
        la_rule_columns_of(b, u, width);
        u += width;
#else
#if LA_GENERAL_VECS > 1
        for (; end - u >= 4; u += 4) la_rule_tile4(b, u, 0, b->count);
        if (u == end) return;
#endif
        la_rule_tile1(b, u++, 0, b->count);
#endif
    }
}

/* ---- Recurrences: one token of a small state ------------------------------------------------- */

#if LA_W > 1
#define LA_RULE_FEW 128 /* rows at most */

#if LA_COLD
/* One token of a head of few rows, in one go and with the bits of a block of one, which would take
   longer than the arithmetic. */
typedef struct la_once {
    const float *k, *q, *v; /* q: of its key, where there is no query */
    size_t dv;
    float *s, *out; /* out: NULL: no query */
    int kind;       /* as of a tile; those that read come last */
    size_t m;
    const float *a, *r, *p;
    size_t a_step;
    int signs;
    int owes, each, rows_owe;           /* each: a decay for each row; others as of la_rule */
    float gain, rest, scale, due, lead; /* as of la_tokens, gain: what is paid; rest: of params */
    int map, keeps, logs, stream;       /* stream: states come from memory: fetch ahead */
    int pairs; /* of panels: each is read while the one before is updated */
    uint16_t flagged[LA_RULE_FEW / 16]; /* rows to flush, */
    int late;                           /* and once they are read, too */
    int rare;                           /* decays are such as la_once_rarely takes */
    size_t begun, ready;                /* heads whose decays are known, if rows share them */
    float decays[LA_W];
    size_t reach, tiles, wide; /* as of la_fetch_next; columns at a time */
    float made[LA_RULE_FEW], k_made[LA_RULE_FEW], q_made[LA_RULE_FEW], r_made[LA_RULE_FEW];
    float p_made[LA_RULE_FEW];
} la_once;
#endif

#if LA_COLD
/* As la_rule_flush, of columns from row on. */
LINATTN__COLD static LINATTN__NOINLINE void la_once_flush(const la_once *o, float *row,
                                                          size_t columns, int decays)
{
    la_rule_flush_rows(row, o->m, o->m, o->made, 1, o->flagged, 0, columns, decays);
}
#endif

/* The rows of a tile, as la_rule_rows; but the kind of rule need be no constant. next: what the key
   reads of the tile after, or NULL; paired: that has been fetched by now, what follows has not.
   apart: rows are multiplied by 1, too. bare: nothing is fetched or read ahead, and all rows are
   multiplied by one number if `apart`, else by none: half of the instructions, which is what one
   token of a small state takes. */
LINATTN__INLINE void la_once_rows(const la_once *o, float *row, const la_vec *v, la_vec *sum,
                                  const la_vec *had, la_vec *next, const int kind, const int paired,
                                  const int apart, const int bare, const size_t NR)
{
    const size_t m = o->m, after = NR * LA_W * m, skipped = paired ? after : 0;
    /* none of it is loaded again behind stores, which might be to anything */
    const float *const k = o->k, *const q = o->q, *const r = o->r, *const p = o->p, *a = o->a;
    const size_t a_step = bare ? 0 : o->a_step, reach = o->reach;
    const size_t tiles = !bare && o->stream ? o->tiles : 0;
    /* by 1, too, where that takes stores out of the way: see la_rule_row, linattn__contended. On
       Zen 4 it does not, where arithmetic takes as long as stores, and rows 1.2 times as long. */
    const int always = apart || (LA_W == 16 && !bare && !linattn__halved());
    const int scales = always || (!bare && (a_step || *a != 1.0f));
    const la_vec all = la_set1(*a);
    la_vec x[4];
    size_t f, j;
    for (f = 0; f < m; f++, row += 16, a += a_step) {
        const la_vec kf = la_set1(k[f]), qf = la_set1(q[f]);
        if (tiles) la_fetch_next(row + skipped, m, reach, NR == LA_PANEL_VECS && reach, tiles, NR);
        if (next) { /* before stores: rows of both tiles may differ in nothing but high bits */
            const la_vec rf = la_set1(r[f]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) next[j] =
                la_fma_hot(rf, la_load(row + after + la_offset(m, j)), next[j]);
        }
        LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_load(row + la_offset(m, j));
        if (kind == LA_BEFORE) {
            LINATTN__UNROLL for (j = 0; j < NR; j++) sum[j] = la_fma_hot(qf, x[j], sum[j]);
        }
        if (scales) {
            const la_vec af = bare ? all : la_set1(*a);
            LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_mul(af, x[j]);
        }
        if (kind == LA_GENERAL) {
            const la_vec pf = la_set1(p[f]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) x[j] = la_fma_hot(pf, had[j], x[j]);
        }
        LINATTN__UNROLL for (j = 0; j < NR; j++)
        {
            x[j] = la_fma_hot(kf, v[j], x[j]);
            la_store(row + la_offset(m, j), x[j]);
        }
        if (kind != LA_BEFORE) {
            LINATTN__UNROLL for (j = 0; j < NR; j++) sum[j] = la_fma_hot(qf, x[j], sum[j]);
        }
    }
}

/* What the key reads of a tile. */
LINATTN__INLINE void la_once_read(const la_once *o, const float *row, la_vec *had, const size_t NR)
{
    const size_t m = o->m;
    const float *r = o->r, *const end = r + m;
    la_vec sum[4]; /* gcc keeps those that a pointer leads to in memory */
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NR; j++) sum[j] = la_zero();
    for (; r < end; r++, row += 16) {
        const la_vec rf = la_set1(*r);
        LINATTN__UNROLL for (j = 0; j < NR; j++) sum[j] =
            la_fma(rf, la_load(row + la_offset(m, j)), sum[j]);
    }
    LINATTN__UNROLL for (j = 0; j < NR; j++) had[j] = sum[j];
}

/* NR vectors of columns from `row` on, whole panels of them, as la_rule_tile. had: what the key
   reads of them, if that is known: `paired`; next: as of la_once_rows. Where they are the last and
   more than there are, `ends`, returns whether sums are finite. */
LINATTN__INLINE int la_once_tile(const la_once *o, float *row, const float *values, float *out,
                                 la_vec *had, la_vec *next, int ends, const int paired,
                                 const size_t NR)
{
    const int reads = o->kind == LA_GENERAL ? LA_GENERAL : LA_DELTA;
    const int kind = paired ? reads : o->kind; /* which leaves a loop without the others */
    const la_vec gain = la_set1(o->gain), scale = la_set1(o->scale);
    la_vec v[4], sum[4], x = la_zero();
    size_t j;
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        v[j] = la_load(values + j * LA_W);
        sum[j] = la_zero();
    }
    if (!paired && o->kind >= LA_DELTA) la_once_read(o, row, had, NR);
    if (o->late) la_once_flush(o, row, NR * LA_W, 1);
    if (kind == LA_DELTA) {
        const la_vec due = la_set1(0.0f - o->due);
        LINATTN__UNROLL for (j = 0; j < NR; j++) v[j] = la_fma(due, had[j], v[j]);
    }
    LINATTN__UNROLL for (j = 0; j < NR; j++) v[j] = la_mul(gain, v[j]);
    if (!paired && !o->stream && !o->a_step) {
        if (kind == LA_BEFORE)
            la_once_rows(o, row, v, sum, had, NULL, LA_BEFORE, 0, 1, 1, NR);
        else if (kind == LA_GENERAL)
            la_once_rows(o, row, v, sum, had, NULL, LA_GENERAL, 0, 1, 1, NR);
        else if (*o->a == 1.0f && !(LA_W == 8 && linattn__contended()))
            la_once_rows(o, row, v, sum, had, NULL, LA_WRITE, 0, 0, 1, NR);
        else
            la_once_rows(o, row, v, sum, had, NULL, LA_WRITE, 0, 1, 1, NR);
    } else if (LA_W == 16 && (paired || kind != LA_BEFORE)) {
        /* one loop has registers for all kinds but LA_BEFORE, which `paired` never is: compilers do
           not see it, and keep its pointers in vector registers */
        la_once_rows(o, row, v, sum, had, next, kind, paired, 0, 0, NR);
    } else if (kind == LA_BEFORE) {
        la_once_rows(o, row, v, sum, had, next, LA_BEFORE, paired, NR == LA_PANEL_VECS, 0, NR);
    } else if (kind == LA_GENERAL) {
        la_once_rows(o, row, v, sum, had, next, LA_GENERAL, paired, NR == LA_PANEL_VECS, 0, NR);
    } else if (LA_W == 8 && linattn__contended()) {
        la_once_rows(o, row, v, sum, had, next, LA_WRITE, paired, 1, 0, NR);
    } else {
        la_once_rows(o, row, v, sum, had, next, LA_WRITE, paired, 0, 0, NR);
    }
    if (ends) {
        LINATTN__UNROLL for (j = 0; j < NR; j++) x = la_add(x, la_sub(sum[j], sum[j]));
    }
    if (!out) return !la_any(la_unordered(x));
    LINATTN__UNROLL for (j = 0; j < NR; j++)
    {
        if (kind == LA_BEFORE) sum[j] = la_fma(la_set1(o->lead), v[j], sum[j]);
        sum[j] = la_mul(sum[j], scale);
        if (o->signs) sum[j] = la_clamp(sum[j]);
        la_store(out + j * LA_W, sum[j]);
    }
    return !la_any(la_unordered(x));
}

#if LA_COLD
/* The last `left` values, as many as a tile has. */
static LINATTN__NOINLINE void la_once_values(const la_once *o, float *to, size_t left,
                                             size_t columns)
{
    const float *const v = o->v + (o->dv - left);
    size_t j;
    for (j = 0; j * LA_W < columns; j++)
        la_store(to + j * LA_W, la_load_part(v + j * LA_W, la_panel_lanes(left, j)));
}

static LINATTN__NOINLINE void la_once_outputs(const la_once *o, const float *from, size_t left)
{
    float *const out = o->out + (o->dv - left);
    size_t i;
    for (i = 0; i < left; i += LA_W)
        la_store_part(out + i, la_load(from + i), la_lanes_left(left, i));
}
#endif

/* A tile from column c, read and updated by itself; or, paired, what the key reads is known. */
LINATTN__INLINE int la_once_alone(const la_once *o, size_t c, la_vec *had, const int paired,
                                  const size_t NR)
{
    const size_t left = o->dv - c;
    const int ends = left < NR * LA_W;
    const float *values = o->v + c;
    float part[4 * LA_W], *out = o->out ? o->out + c : NULL;
    int finite;
    if (ends) {
        la_once_values(o, part, left, NR * LA_W);
        values = part;
        if (out) out = part;
    }
    finite = la_once_tile(o, o->s + c * o->m, values, out, had, NULL, ends, paired, NR);
    if (ends && out) la_once_outputs(o, part, left);
    return finite;
}

/* All columns, four vectors at a time while there are as many: tiles of fewer wait for their sums.
   Returns whether the sums of the last ones are finite, beside which columns are to be zero. */
LINATTN__WARM static LINATTN__NOINLINE int la_once_columns(const la_once *o)
{
    la_vec had[4];
    size_t c = 0;
    int finite = 1;
#if LA_PANEL_VECS == 1
    for (; o->wide > 32 && c + 48 < o->dv; c += 64) finite = la_once_alone(o, c, had, 0, 4);
#endif
#if LA_PANEL_VECS < 4
    for (; o->wide > 16 && c + 16 < o->dv; c += 32)
        finite = la_once_alone(o, c, had, 0, 2 * LA_PANEL_VECS);
#endif
    for (; c < o->dv; c += 16) finite = la_once_alone(o, c, had, 0, LA_PANEL_VECS);
    return finite;
}

#if LA_W == 16
/* The same of more than three panels, two by two, each two read while the rows of those before are
   updated. */
LINATTN__WARM static LINATTN__NOINLINE int la_once_pairs(const la_once *o)
{
    la_vec had[2], next[2];
    size_t c = 0, j;
    int finite;
    la_once_read(o, o->s, had, 2);
    for (; c + 48 < o->dv; c += 32) {
        float *const out = o->out ? o->out + c : NULL;
        for (j = 0; j < 2; j++) next[j] = la_zero();
        (void)la_once_tile(o, o->s + c * o->m, o->v + c, out, had, next, 0, 1, 2);
        for (j = 0; j < 2; j++) had[j] = next[j];
    }
    finite = la_once_alone(o, c, had, 1, 2);
    return c + 32 < o->dv ? la_once_alone(o, c + 32, had, 0, 1) : finite;
}
#endif

#if LA_COLD
/* Decays that all rows of a head share, if there are any, of as many heads from `head` on as a
   vector has: before all else, as e^x is what takes longest. */
LINATTN__INLINE void la_once_decays(la_once *o, const linattn__recurrence *x, size_t head)
{
    const linattn__gate *const gate = x->gates->gate + LINATTN__DECAY;
    size_t heads = gate->at && gate->head != 1 ? 1 : x->head_end - head;
    la_vec a = la_set1(1.0f);
    if (heads > LA_W) heads = LA_W;
    o->begun = head;
    o->ready = head + heads;
    if (gate->at) {
        const float *const at = gate->at + head * gate->head;
        a = heads == 1 ? la_set1(*at) : la_load_part(at, (int)heads);
        if (o->logs) a = la_exp_full(a);
    }
    la_store(o->decays, a);
}

/* All rows decay by `by`. Returns 0, and has changed nothing of the state, where some are to be
   flushed. */
LINATTN__INLINE int la_once_decay(la_once *o, float *scalars, float by, float share)
{
    float left, owed = linattn__owed(scalars), kept = scalars[LINATTN__KEPT] * by;
    if (o->owes) {
        o->due = owed * by;
        by = la_rule_owe(&owed, by, 0);
        o->gain = o->gain / owed;
        o->scale = o->rest * owed;
    } else if (owed != 1.0f) {
        return 0;
    }
    if (scalars[LINATTN__ROWS] != 0.0f) return 0;
    o->made[0] = by;
    left = scalars[LINATTN__CREDIT] * (by * share);
    if (!(left >= LINATTN__SPENT && left <= 1.0f)) return 0;
    scalars[LINATTN__CREDIT] = left;
    if (o->owes) scalars[LINATTN__OWED] = owed;
    if (!(kept >= LINATTN__FLT_MIN)) kept = linattn__flush(kept);
    if (o->keeps) scalars[LINATTN__KEPT] = kept;
    return 1;
}

/* The operands of rows [f, f + LA_W) as la_rule_weigh_rows makes them. */
LINATTN__INLINE void la_once_weigh(la_once *o, size_t f, la_vec before, la_vec due, la_vec owed)
{
    const int lanes = la_lanes_left(o->m, f), general = o->kind == LA_GENERAL;
    const la_vec by = la_reciprocal(owed), k = la_load_most(o->k + f, lanes);
    const la_vec q = la_load_most(o->q + f, lanes);
    if (general) {
        la_store(o->r_made + f, la_mul(la_load_most(o->r + f, lanes), before));
        la_store(o->p_made + f, la_mul(la_load_most(o->p + f, lanes), by));
    } else if (o->kind == LA_DELTA) {
        la_store(o->r_made + f, la_mul(k, due));
    }
    la_store(o->k_made + f, la_mul(k, by));
    la_store(o->q_made + f, la_mul(q, o->kind == LA_BEFORE ? before : owed));
}

/* Those of each row, as long as none is to pay or to be flushed. Returns 0, and has changed nothing
   of the state, if one is. */
LINATTN__INLINE int la_once_usual(la_once *o, float *low, float *kept, const float *decay,
                                  float share)
{
    const la_vec one = la_set1(1.0f), by = la_set1(share);
    const size_t m = o->m, m16 = linattn__round16(m);
    const int reads = o->kind >= LA_DELTA;
    float *const credit = kept + m16;
    la_vec least = one, most = one, sum = la_zero();
    size_t f;
    for (f = 0; f < m; f += LA_W) {
        const int lanes = la_lanes_left(m, f);
        la_vec a = la_load_most(decay + f, lanes), due;
        if (o->logs) a = la_exp_full(a);
        if (lanes < LA_W) a = la_first(a, one, lanes);
        if (o->keeps) la_store(o->r_made + f, a);
        due = la_mul(la_rule_row_owed(low + f), a);
        la_store(o->made + f, due);
        least = la_min(due, least);
        most = la_max(due, most);
        sum = la_add(sum, due); /* NaN stays */
        if (reads) {
            la_vec left = la_mul(la_load(credit + f), by);
            if (lanes < LA_W) left = la_first(left, one, lanes);
            if (!la_between(left, LINATTN__SPENT, 1.0f)) return 0;
        }
    }
    if (la_any(la_gt(one, least)) || la_any(la_gt(most, la_set1(LINATTN__ROWS_MOST))) ||
        la_any(la_unordered(sum)))
        return 0;
    for (f = 0; f < m; f += LA_W) {
        const int lanes = la_lanes_left(m, f);
        const la_vec due = la_load(o->made + f);
        if (o->keeps) {
            const la_vec all = la_mul(la_load(kept + f), la_load(o->r_made + f));
            la_store_part(kept + f, la_normal(all), lanes);
        }
        la_once_weigh(o, f, la_rule_row_owed(low + f), due, due);
        if (reads) la_store_part(credit + f, la_mul(la_load(credit + f), by), lanes);
        la_store_part(low + f, due, lanes);
    }
    o->made[0] = 1.0f;
    return 1;
}

/* The same where rows do not owe, but are multiplied, as long as none is to be flushed. */
LINATTN__INLINE int la_once_multiplied(la_once *o, float *kept, const float *decay, float share)
{
    const la_vec one = la_set1(1.0f), by = la_set1(share), spent = la_set1(LINATTN__SPENT);
    const size_t m = o->m, m16 = linattn__round16(m);
    float *const credit = kept + m16;
    la_vec least = one, most = one, sum = la_zero();
    size_t f;
    for (f = 0; f < m; f += LA_W) {
        const int lanes = la_lanes_left(m, f);
        la_vec a = la_load_most(decay + f, lanes), left;
        if (o->logs) a = la_exp_full(a);
        if (lanes < LA_W) a = la_first(a, one, lanes);
        la_store(o->made + f, a);
        left = la_mul(la_load(credit + f), la_mul(a, by));
        if (lanes < LA_W) left = la_first(left, one, lanes);
        la_store(o->p_made + f, left);
        least = la_min(left, least);
        most = la_max(left, most);
        sum = la_add(sum, left); /* NaN stays */
    }
    if (la_any(la_gt(spent, least)) || la_any(la_gt(most, one)) || la_any(la_unordered(sum)))
        return 0;
    for (f = 0; f < m; f += LA_W) {
        const int lanes = la_lanes_left(m, f);
        const la_vec a = la_load(o->made + f);
        if (o->keeps) {
            const la_vec all = la_mul(la_load(kept + f), a);
            la_store_part(kept + f, la_normal(all), lanes);
        }
        if (o->kind == LA_DELTA) la_store(o->r_made + f, la_mul(la_load_most(o->k + f, lanes), a));
        la_store_part(credit + f, la_load(o->p_made + f), lanes);
    }
    return 1;
}

/* Both where some are; sums are flushed here but for what a query reads before. */
LINATTN__COLD static LINATTN__NOINLINE int la_once_rarely(la_once *o, float *low, float *kept,
                                                          const float *decay, float share)
{
    const la_vec one = la_set1(1.0f), most = la_set1(LINATTN__ROWS_MOST);
    const size_t m = o->m, m16 = linattn__round16(m);
    float *const credit = kept + m16;
    la_vec left[LA_RULE_FEW / LA_W], owed[LA_RULE_FEW / LA_W], all[LA_RULE_FEW / LA_W];
    unsigned rare = 0; /* a bit for 16 rows */
    size_t f, g;
    for (g = 0; g < m; g += LA_OWED_ROWS) {
        const size_t end = m - g < LA_OWED_ROWS ? m : g + LA_OWED_ROWS;
        int usual = 1;
        for (f = g; f < end; f += LA_W) {
            const int lanes = la_lanes_left(m, f);
            la_vec a = la_load_part(decay + f, lanes), *const due = owed + f / LA_W;
            if (o->logs) a = la_exp_full(a);
            if (lanes < LA_W) a = la_first(a, one, lanes); /* what is behind the last row stays */
            all[f / LA_W] = la_normal(la_mul(la_load(kept + f), a));
            *due = a;
            if (!o->rows_owe) continue;
            *due = la_mul(la_rule_row_owed(low + f), a);
            if (!la_between(*due, 1.0f, LINATTN__ROWS_MOST)) usual = 0;
        }
        for (f = g; f < end; f += LA_W) {
            const int lanes = la_lanes_left(m, f);
            const la_vec due = owed[f / LA_W];
            la_vec by = one, *const at = left + f / LA_W;
            if (!o->rows_owe) {
                by = due;
                if (o->kind == LA_DELTA)
                    la_store(o->r_made + f, la_mul(la_load_part(o->k + f, lanes), due));
            } else if (!usual) {
                by = la_mul(due, la_div(one, most));
                owed[f / LA_W] = most;
                o->a_step = 1;
            }
            la_store(o->made + f, by);
            if (o->rows_owe) la_once_weigh(o, f, la_rule_row_owed(low + f), due, owed[f / LA_W]);
            *at = la_mul(la_load(credit + f), la_first(la_mul(by, la_set1(share)), one, lanes));
            if (!la_between(*at, LINATTN__SPENT, 1.0f)) rare |= 1u << f / 16;
        }
    }
    if (rare && o->kind == LA_BEFORE) return 0;
    for (f = 0; f < m; f += LA_W) {
        const int lanes = la_lanes_left(m, f);
        if (o->rows_owe) la_store_part(low + f, owed[f / LA_W], lanes);
        if (!(rare >> f / 16 & 1)) la_store_part(credit + f, left[f / LA_W], lanes);
        if (o->keeps) la_store_part(kept + f, all[f / LA_W], lanes);
    }
    if (!rare) return 1;
    for (f = 0; f < m; f += 16) {
        const size_t count = m - f < 16 ? m - f : 16;
        o->flagged[f / 16] = 0;
        if (rare >> f / 16 & 1)
            o->flagged[f / 16] =
                (uint16_t)la_rule_spend_rows(credit + f, o->made + f, share, count);
    }
    o->late = o->kind == LA_GENERAL;
    la_once_flush(o, o->s, linattn__round16(o->dv), !o->late);
    return 1;
}

LINATTN__WARM static LINATTN__NOINLINE int la_once_each(la_once *o, float *low, float *kept,
                                                        const float *decay, float share)
{
    float *const scalars = kept + 2 * linattn__round16(o->m);
    if (scalars[LINATTN__CREDIT] != 1.0f || scalars[LINATTN__KEPT] != 1.0f ||
        linattn__owed(scalars) != 1.0f)
        return 0;
    if (!o->rows_owe && scalars[LINATTN__ROWS] != 0.0f) return 0;
    o->a_step = !o->rows_owe;
    o->rare = !(o->rows_owe ? la_once_usual(o, low, kept, decay, share)
                            : la_once_multiplied(o, kept, decay, share));
    if (o->rare && !la_once_rarely(o, low, kept, decay, share)) return 0;
    if (o->kind == LA_DELTA) o->r = o->r_made;
    if (!o->rows_owe) return 1;
    scalars[LINATTN__OWED] = 0.0f;
    scalars[LINATTN__ROWS] = 1.0f;
    o->k = o->k_made;
    o->q = o->q_made;
    o->r = o->r_made;
    o->p = o->p_made;
    return 1;
}

/* Keys and queries that do not serve as they are. */
static LINATTN__NOINLINE void la_once_map(const linattn__span *s, la_once *o, float *e)
{
    const int queries = o->q != o->k;
    la_rule b;
    b.s.params = s->params;
    b.s.d = o->m;
    b.s.e = e;
    b.count = 1;
    b.row = b.f0 = 0;
    b.f1 = o->m;
    b.power = s->params->map == LINATTN__MAP_POWER;
    la_rule_map(&b, o->k, 0, o->k_made, 1);
    if (queries) la_rule_map(&b, o->q, 0, o->q_made, 0);
    o->k = o->k_made;
    o->q = queries ? o->q_made : o->k;
}

LINATTN__INLINE const float *la_once_gate(const linattn__gating *g, int which, size_t head)
{
    return g->gate[which].at + head * g->gate[which].head;
}

/* mLSTM's gates become by what the sums decay and what keys are times. */
LINATTN__INLINE void la_once_powers(la_once *o, la_rule *b, const float *decay, float input)
{
    la_tokens *const w = b->w;
    la_store(w->gain, la_first(la_set1(input), la_set1(*decay), 1));
    la_rule_split(w->gain, w->scale, 1, 1); /* of both */
    w->decay[0] = w->gain[1];
    w->power[0] = w->scale[1];
    if (!o->logs) {
        w->decay[0] = *decay;
        la_rule_split(w->decay, w->power, 1, 0);
    }
    la_rule_stabilise(b, 0);
    w->owed[0] = linattn__owed(b->scalars);
    o->made[0] = la_rule_owe(w->owed, w->decay[0], 1);
    b->scalars[LINATTN__OWED] = w->owed[0];
    o->gain = w->gain[0] / w->owed[0];
    if (!la_rule_spends(b->scalars + LINATTN__CREDIT, o->made[0])) return;
    la_rule_flush_rows(o->s, o->m, o->m, o->made, 0, NULL, 0, linattn__round16(o->dv), 1);
}

/* The same, and z and the denominator. */
LINATTN__COLD static LINATTN__NOINLINE void la_once_mlstm(la_once *o, const linattn__recurrence *x,
                                                          size_t head, float *z)
{
    const volatile float minus = -0.0f; /* as in la_rule_normalise_rows */
    const la_vec none = la_set1(minus);
    la_vec sum[LA_PANEL_VECS], a, gain;
    la_tokens w;
    la_rule b;
    size_t f, j;
    b.w = &w;
    b.s.params = x->span->params;
    b.scalars = z + 4 * linattn__round16(o->m);
#if LINATTN__HAS_HALF
    b.s.element = LINATTN_F32;
#endif
#if LINATTN__HAS_COMPENSATED
    b.past = 0;
#endif
    la_once_powers(o, &b, la_once_gate(x->gates, LINATTN__DECAY, head),
                   *la_once_gate(x->gates, LINATTN__INPUT, head));
    a = la_set1(w.decay[0]);
    gain = la_set1(w.gain[0]);
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++) sum[j] = la_zero();
    for (f = 0; f < o->m; f += 16) {
        LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++)
        {
            const size_t at = f + j * LA_W;
            if (at < o->m) {
                const int lanes = la_lanes_left(o->m, at);
                const la_vec y = la_rule_decayed(la_load(z + at), a);
                const la_vec k = la_load_part(o->k + at, lanes);
                const la_vec sums = la_add(y, la_fma(gain, k, none));
                sum[j] = la_fma(la_load_part(o->q + at, lanes), sums, sum[j]);
                la_store_part(z + at, sums, lanes);
            }
        }
    }
    LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++) la_store(w.den + j * LA_W, sum[j]);
    if (o->out) la_rule_floor(&b, 0, &o->scale);
    if (o->out) la_rule_scale(&o->scale, w.owed[0]);
}

#if LINATTN__BOTH
#define LA_ONCE_COLUMNS(call, o)                                                                   \
    ((o)->pairs ? linattn__once_pairs_avx512 : LA_HOT(call, once_columns))
#elif LA_W == 16
#define LA_ONCE_COLUMNS(call, o) ((o)->pairs ? la_once_pairs : la_once_columns)
#else
#define LA_ONCE_COLUMNS(call, o) la_once_columns
#endif

/* One head. Returns 0, and has changed nothing, where it asks for what is rare: then blocks take
   it. */
LINATTN__INLINE int la_once_head(la_once *o, const linattn__recurrence *x, size_t head)
{
    const linattn__span *const s = x->span;
    const linattn__gating *const g = x->gates;
    const size_t m16 = linattn__round16(o->m);
    const size_t key = x->key_group > 1 ? head / x->key_group : head;
    float *const z = s->z + head * s->head_floats, *const kept = z + 2 * m16;
    const float share = o->kind >= LA_DELTA ? 0.96f : 1.0f;
    const int mlstm = x->rule == LINATTN_RULE_MLSTM;
    int finite;
    o->late = o->rare = 0;
    o->k = s->k + key * s->k_head;
    o->v = s->v + head * s->v_head;
    o->q = s->q ? s->q + key * s->q_head : o->k;
    o->out = s->q ? s->out + head * s->out_head : NULL;
    o->s = z + (s->s - s->z);
    if (linattn__masked(o->k, o->m) || (o->kind >= LA_DELTA && la_rule_quiet(o->v, o->dv)))
        return 0;
    o->gain = o->kind == LA_DELTA ? *la_once_gate(g, LINATTN__BETA, head) : 1.0f;
    if (o->map) la_once_map(s, o, z + m16);
    o->r = o->k;
    if (o->kind == LA_GENERAL) {
        o->r = la_once_gate(g, LINATTN__READ, key);
        o->p = la_once_gate(g, LINATTN__WRITE, key);
    }
    if (o->kind == LA_BEFORE) {
        float lanes[16];
        size_t f;
        for (f = 0; f < 16; f += LA_W) la_store(lanes + f, la_zero());
        la_rule_lanes(la_once_gate(g, LINATTN__BONUS, head), o->k, o->q, o->m, lanes);
        o->lead = la_denominator(lanes);
    }
    if (mlstm)
        la_once_mlstm(o, x, head, z);
    else if (o->each ? !la_once_each(o, z + m16, kept, la_once_gate(g, LINATTN__DECAY, head), share)
                     : !la_once_decay(o, kept + 2 * m16, o->decays[head - o->begun], share))
        return 0;
    finite = LA_ONCE_COLUMNS(s, o)(o);
    /* a decay that is negative, or -0, is one that is rare, and makes -0 of what is beyond dv */
    if (o->dv % 16 != 0 && (o->kind == LA_BEFORE || o->rare || !finite)) la_rule_padding(s, o->s);
    return 1;
}

/* How they go through S. */
LINATTN__INLINE void la_once_tiles(la_once *o, const linattn__span *s)
{
    /* Zen 4 takes rows of two panels faster than of four: up to a fifth, from memory a tenth. What
       does not stay in L1 until it is read again comes from L2 as slowly. On Intel's processors the
       next panels come from L2 and beyond while these are updated: a tenth to a fifth; but states
       that are in L1 take up to half as long again. */
    o->pairs = 0;
    if (LA_LANES(s) == 16 && o->kind >= LA_DELTA && s->dv > 48) {
        if (linattn__halved()) o->pairs = s->stream || (s->m > 64 && s->dv > 64);
        if (linattn__intel()) o->pairs = s->dv > 80 && s->m * s->dv > 12288 / s->heads;
    }
    o->stream = s->stream || o->pairs;
    o->wide = linattn__halved() ? 32 : 64;
    o->reach = 0;
    o->tiles = linattn__tiles_ahead(s);
    if (linattn__near() && o->kind < LA_DELTA) { /* others come by twice */
        if (s->stream > 1) {
            o->reach = 32 * s->m;
            o->wide = 16;
        } else
            o->stream = 0;
    }
    /* Out of L3 Intel's hardware keeps up by itself with one panel, or with two where rows are read
       first; four that are fetched take a tenth longer. */
    if (linattn__intel() && s->stream == 1 && o->kind < LA_DELTA) {
        o->stream = 0;
        o->wide = o->kind == LA_BEFORE ? 32 : 16;
    }
}

/* The heads of a job from `head`, up to one that is for blocks: returns which. */
static LINATTN__NOINLINE size_t la_rule_once(const linattn__recurrence *x, size_t head)
{
    const linattn__span *const s = x->span;
    const linattn__params *const p = s->params;
    const int mlstm = x->rule == LINATTN_RULE_MLSTM;
    LINATTN__LINED la_once o;
    o.logs = x->gates->logs;
    o.each = x->gates->per_feature && x->gates->gate[LINATTN__DECAY].at;
    o.begun = o.ready = 0;
    if (!o.each && !mlstm) la_once_decays(&o, x, head);
    o.m = s->m;
    o.dv = s->dv;
    o.scale = o.rest = p->rest;
    o.due = 1.0f;
    o.kind = x->rule == LINATTN_RULE_GENERAL             ? LA_GENERAL
             : mlstm                                     ? LA_WRITE
             : x->rule != LINATTN_RULE_GATED             ? LA_DELTA
             : x->gates->gate[LINATTN__BONUS].at != NULL ? LA_BEFORE
                                                         : LA_WRITE;
    o.keeps = x->rule == LINATTN_RULE_GATED;
    o.rows_owe = o.each && o.dv >= LINATTN__ROWS_COLUMNS;
    o.a_step = 0;
    o.owes = !o.each && o.kind != LA_BEFORE && o.kind != LA_GENERAL;
    o.a = o.made;
    o.p = NULL; /* but under GENERAL */
    o.signs = LINATTN__IS_SIGNED(p->map);
    o.map = !o.signs || p->source != LINATTN__DIRECT;
    la_once_tiles(&o, s);
    for (; head < x->head_end && la_once_head(&o, x, head); head++)
        if (head + 1 == o.ready && head + 1 < x->head_end) la_once_decays(&o, x, head + 1);
    return head;
}

/* Are tokens of these heads, if there are several, few and small enough to go one by one? Blocks of
   two take up to twice as long, blocks of four a fifth longer; those of the delta rules less, and
   those that AVX-512 takes. */
LINATTN__INLINE int la_rule_are_few(const linattn__recurrence *x)
{
    const linattn__span *const s = x->span;
    const int delta = x->rule == LINATTN_RULE_DELTA || x->rule == LINATTN_RULE_GATED_DELTA;
    const int wide = LA_LANES(s) == 16;
    const size_t floats = s->m * s->dv, tokens = delta ? 2 : 4;
    size_t most = s->n > 2 || wide || (delta && !x->gates->per_feature) ? 1024 : 4096;
    if (wide && s->n > 3) most = 512;
    return s->n <= tokens && floats <= most && floats * (x->head_end - x->head) <= 32768;
}

/* Are these tokens of few rows, without exponents of features, with each head as a whole, that go
   one by one? Of those with denominators mLSTM's are taken. */
LINATTN__INLINE int la_rule_is_once(const linattn__recurrence *x)
{
    const linattn__span *const s = x->span;
    return s->m <= LA_RULE_FEW && s->k && s->group == 1 && !x->own &&
           (s->n == 1 || la_rule_are_few(x)) && s->params->norm == LINATTN_NORM_NONE &&
           !LINATTN__IS_EXP(s->params->map) && !LINATTN__PAST(s) && !LINATTN__ELEMENT(s) &&
           x->begin == 0 && x->end == s->dv;
}
#endif
#endif

/* ---- Recurrences: blocks of tokens ----------------------------------------------------------- */

#if LA_COLD
/* Begins a block of query head g, or of none. */
static void la_rule_begin(la_rule *b, size_t t0, size_t count, size_t g, const float *query,
                          float *out)
{
    size_t i;
    b->t0 = t0;
    b->count = count;
    b->query = query ? query + g * b->s.q_head + t0 * b->s.q_token : NULL;
    b->out = query ? out + g * b->s.out_head + t0 * b->s.out_token : NULL;
    b->out_token = query ? b->s.out_token : 0;
    for (i = 0; b->before && i < count * 16; i++) b->w->lanes[i] = 0.0f;
    for (i = 0; b->normal && i < count * 16; i++) b->w->den[i] = b->w->lost[i] = 0.0f;
}

#if LINATTN__HAS_COMPENSATED
/* The past of all features, behind all of the sums, as chunks are not the same everywhere. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_past_end(la_rule *b, uint64_t seen, size_t each,
                                                             int keys)
{
    const int kind = b->kind;
    b->first = 0;
    for (b->f0 = 0; b->f0 < b->s.m; b->f0 = b->f1) {
        b->f1 = b->s.m - b->f0 < b->step ? b->s.m : b->f0 + b->step;
        b->last = b->f1 == b->s.m;
        if (!b->whole) {
            if (keys) la_rule_keys(b);
            if (keys && b->per_feature) la_rule_factors(b);
            if (b->out) la_rule_queries(b);
        }
        la_rule_past(b, keys);
        if (!b->out) continue;
        if (b->last) la_rule_finish(b, seen, each);
        b->kind = LA_READ;
        b->s.s += b->past;
        b->q.at = b->p_made;
        b->q.row = b->row;
        LA_HOT(b, rule_columns)(b);
        b->s.s -= b->past;
        b->kind = kind;
    }
}
#endif

/* What a chunk of features ends with. */
LINATTN__INLINE void la_rule_end(la_rule *b, uint64_t seen, size_t each, int keys)
{
#if LINATTN__HAS_COMPENSATED
    if (b->past) {
        const int last = b->last;
        b->last = 0;
        LA_HOT(b, rule_columns)(b);
        if (last) la_rule_past_end(b, seen, each, keys);
        return;
    }
#endif
    (void)keys;
    if (b->last && b->out) la_rule_finish(b, seen, each);
    LA_HOT(b, rule_columns)(b);
}

/* Sums that still owe decays, before a token whose arithmetic has no room for that. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_pay(la_rule *b)
{
    const float owed = linattn__owed(b->scalars);
    const size_t whole = (b->s.column_end + LA_W - 1) / LA_W * LA_W;
    float by[LA_OWED_ROWS];
    size_t f, end, i;
    for (f = 0; f < b->s.m; f = end) {
        end = b->s.m - f < LA_OWED_ROWS ? b->s.m : f + LA_OWED_ROWS;
        for (i = 0; i < end - f; i++) by[i] = owed * linattn__row_owed(b->scalars, b->s.e, f + i);
        la_rule_pay_rows(b, f, end, by);
        for (i = f; b->rows && i < end; i++) b->s.e[i] = 0.0f;
    }
    la_rule_flush_rows(b->s.s, b->s.m, b->s.m, by, 0, NULL, b->s.column_begin, whole, 0);
    b->scalars[LINATTN__CREDIT] = 1.0f;
    b->scalars[LINATTN__OWED] = b->scalars[LINATTN__ROWS] = 0.0f;
    b->rows = 0;
}

/* What all rows owe is owed by each. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_owe_rows(la_rule *b)
{
    const float owed = linattn__owed(b->scalars);
    size_t f;
    for (f = 0; f < b->s.m; f++) b->s.e[f] = owed * linattn__row_owed(b->scalars, b->s.e, f);
    b->scalars[LINATTN__OWED] = 0.0f;
    b->scalars[LINATTN__ROWS] = 1.0f;
    b->rows = 1;
}

/* What is owed before a block, as its rule has it. */
LINATTN__INLINE void la_rule_settle(la_rule *b)
{
    const int shared = linattn__owed(b->scalars) != 1.0f;
    if (LINATTN__ELEMENT(&b->s)) return;
    if (b->each && (shared || !b->rows))
        la_rule_owe_rows(b);
    else if (!b->each && (b->rows || (shared && !b->owes)))
        la_rule_pay(b);
}

/* Reads out `count` tokens from t0 for query head g: of a state that does not change. With a bonus,
   `lead`, of the state before a token. */
LINATTN__COLD static LINATTN__NOINLINE void
la_rule_read(la_rule *b, size_t t0, size_t count, size_t g, uint64_t seen, size_t each, int lead)
{
    const int before = b->before, kind = b->kind;
    size_t t;
    la_rule_begin(b, t0, count, g, b->s.q, b->s.out);
    for (t = 0; t < count; t++) {
        b->w->top[t] = b->scalars[LINATTN__EXPONENT];
        b->w->owed[t] = linattn__owed(b->scalars);
    }
    b->before = lead;
    b->kind = LA_READ;
    for (b->f0 = 0; b->f0 < b->s.m; b->f0 = b->f1) {
        b->f1 = b->s.m - b->f0 < b->step ? b->s.m : b->f0 + b->step;
        b->first = b->f0 == 0;
        b->last = b->f1 == b->s.m;
        if (LINATTN__IS_EXP(b->s.params->map))
            la_rule_exponents(b, lead ? b->s.k + t0 * b->s.k_token : NULL);
        if (lead) la_rule_keys(b);
        la_rule_queries(b);
        if (b->normal) LA_HOT(&b->s, rule_normalise)(b, 0, 1);
        if (lead) la_rule_lead(b);
        if (b->rows) la_rule_weigh_queries(b);
        la_rule_end(b, seen, each, 0);
    }
    if (LINATTN__IS_EXP(b->s.params->map)) la_end_rows(&b->s, b->w->power, b->out, count);
    b->before = before;
    b->kind = kind;
}

/* What the key of a block of one token reads, over all features: kept where the state has room for
   it. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_correct(la_rule *b)
{
    float *const out = b->out;
    const size_t begin = b->s.column_begin, end = b->s.column_end;
    const size_t whole = (end + LA_W - 1) / LA_W * LA_W;
    const int kind = b->kind, signs = b->signs, general = kind == LA_GENERAL;
    size_t c;
    for (c = begin; c < end; c++) b->corrected[c] = 0.0f;
    b->kind = LA_READ;
    b->out = b->corrected;
    b->last = b->signs = b->first = 0;
    for (b->f0 = 0; b->f0 < b->s.m; b->f0 = b->f1) {
        int flush;
        b->f1 = b->s.m - b->f0 < b->step ? b->s.m : b->f0 + b->step;
        la_rule_keys(b);
        if (b->each) {
            la_rule_owe_each(b);
            la_rule_weighed(b);
        } else if (b->per_feature)
            la_rule_decays(b);
        flush = b->w->any[0] && !LINATTN__ELEMENT(&b->s);
        if (flush) la_rule_flush(b, 0, begin, whole, !general);
        if (b->r_made && !b->each) {
            if (!b->per_feature) LA_HOT(&b->s, rule_reads)(b);
            b->r.at = b->r_made;
        }
        b->q = b->r;
        LA_HOT(b, rule_columns)(b);
        if (flush && general) la_rule_flush(b, 0, begin, whole, 1);
        if (b->each && b->w->pays[0]) la_rule_pay_rows(b, b->f0, b->f1, b->a_made);
    }
    b->w->any[0] = 0;
    b->kind = kind;
    b->out = out;
    b->signs = signs;
}

/* One chunk of features of a block with keys. */
static void la_rule_chunk(la_rule *b)
{
    if (LINATTN__IS_EXP(b->s.params->map)) la_rule_exponents(b, b->s.k + b->t0 * b->s.k_token);
    la_rule_keys(b);
    if (b->per_feature && !b->each) {
        if (b->reads && !b->whole)
            la_rule_factors(b);
        else
            la_rule_decays(b);
    }
    if (b->r_made && !b->each) {
        if (!b->per_feature) LA_HOT(&b->s, rule_reads)(b);
        b->r.at = b->r_made;
        b->r.row = b->row;
    }
    b->q = b->k;
    if (b->out) la_rule_queries(b);
    if (b->normal) LA_HOT(&b->s, rule_normalise)(b, 1, b->out != NULL);
    if (b->before && b->out) la_rule_lead(b);
    if (b->each) {
        if (b->reads && !b->whole)
            la_rule_owed_each(b);
        else
            la_rule_owe_each(b);
        la_rule_weighed(b);
    }
    la_rule_end(b, b->s.seen + b->t0 + 1, 1, 1);
}

/* Tokens with keys, none of them masked. More query heads than one read before, or after. */
static LINATTN__NOINLINE void la_rule_block(la_rule *b, size_t t0, size_t count)
{
    const uint64_t seen = b->s.seen + t0 + 1;
    size_t g, c;
    la_rule_begin(b, t0, count, 0, b->s.q, b->s.out);
    la_rule_settle(b);
    b->beyond = LA_W > 1 && b->carries && t0 + count < b->s.n &&
                !linattn__masked(b->s.k + (t0 + count) * b->s.k_token, b->s.d);
    la_rule_gates(b);
    b->settled = 0;
    for (g = 1; b->before && b->s.q && g < b->s.group; g++) {
        la_rule_read(b, t0, count, g, seen, 1, 1);
        b->settled = 1;
    }
    if (b->settled) la_rule_begin(b, t0, count, 0, b->s.q, b->s.out);
    if (b->reads && !b->whole) la_rule_correct(b);
    for (b->f0 = 0; b->f0 < b->s.m; b->f0 = b->f1) {
        b->f1 = b->s.m - b->f0 < b->step ? b->s.m : b->f0 + b->step;
        b->first = b->f0 == 0;
        b->last = b->f1 == b->s.m;
        la_rule_chunk(b);
    }
    if (b->out && LINATTN__IS_EXP(b->s.params->map)) la_end_rows(&b->s, b->w->power, b->out, count);
    for (c = b->s.column_begin; b->reads && !b->whole && c < b->s.column_end; c++)
        b->corrected[c] = 0.0f;
    b->carried = b->beyond;
    for (g = 1; !b->before && b->s.q && g < b->s.group; g++)
        la_rule_read(b, t0, count, g, seen, 1, 0);
}

#if LA_WALK
/* A call's span, one by one: a copy in vectors would wait for what has just been written in
   numbers. */
LINATTN__INLINE void la_rule_span(linattn__span *s, const linattn__recurrence *x)
{
    const linattn__span *const from = x->span;
    s->params = from->params;
    s->q_token = from->q_token;
    s->q_head = from->q_head;
    s->k_token = from->k_token;
    s->v_token = from->v_token;
    s->out_token = from->out_token;
    s->out_head = from->out_head;
    s->group = from->group;
    s->n = from->n;
    s->d = from->d;
    s->m = from->m;
    s->dv = from->dv;
    s->seen = from->seen;
    s->fetch = from->fetch;
#if LINATTN__HAS_HALF
    s->element = from->element;
    s->ahead = from->ahead;
#endif
#if LINATTN__BOTH
    s->set = from->set;
#endif
    s->column_begin = x->begin;
    s->column_end = x->end;
}

/* What the rule asks of every token. */
LINATTN__INLINE void la_rule_kind(la_rule *b, const linattn__recurrence *x)
{
    const linattn__params *const p = x->span->params;
    const int half = LINATTN__ELEMENT(x->span);
    int i, plain;
    b->rule = x->rule;
    b->reads = x->rule == LINATTN_RULE_DELTA || x->rule == LINATTN_RULE_GATED_DELTA ||
               x->rule == LINATTN_RULE_GENERAL;
    b->before = x->gates && x->gates->gate[LINATTN__BONUS].at;
    b->per_feature = x->gates && x->gates->per_feature && x->gates->gate[LINATTN__DECAY].at;
    b->normal =
        p->norm == LINATTN_NORM_SUM || LINATTN__IS_EXP(p->map) || x->rule == LINATTN_RULE_MLSTM;
    plain = !LINATTN__IS_EXP(p->map) && !LINATTN__PAST(x->span) && !half;
    b->owes = plain && !b->per_feature && !b->before && x->rule != LINATTN_RULE_GENERAL;
    b->each = plain && b->per_feature && !b->normal && x->span->dv >= LINATTN__ROWS_COLUMNS;
    b->reading = plain && !b->normal && x->rule != LINATTN_RULE_DELTA;
    b->a_step = b->per_feature ? 1 : 0;
    b->in_place = LINATTN__IS_SIGNED(p->map) && p->source == LINATTN__DIRECT;
    b->power = p->map == LINATTN__MAP_POWER;
    b->signs = LINATTN__IS_SIGNED(p->map);
    b->kind = b->before                         ? LA_BEFORE
              : x->rule == LINATTN_RULE_GENERAL ? LA_GENERAL
              : b->reads                        ? LA_DELTA
                                                : LA_WRITE;
    for (i = 0; i < LINATTN__GATES; i++) b->gate[i] = NULL;
    b->keeps = x->rule == LINATTN_RULE_GATED && !LINATTN__PAST(x->span);
#if LINATTN__BOTH
    /* Zen 4 takes the last columns of the delta rules by AVX-512 a fifth more slowly than by AVX2,
       and all of them where stores of 512 bits clash; whole tiles as fast. Rules that do not read
       take half a vector's time less where the last half is empty, and by AVX2 an eighth less in
       f16. */
    b->set = b->s.set;
    if (b->s.set > 1 && linattn__halved() &&
        (half ? linattn__narrow(b->s.dv) || (half == LINATTN_F16 && b->kind == LA_WRITE)
         : b->kind == LA_DELTA ? b->s.dv % 32 != 0 || LA_SAME_PLACE(b->s.m, 64)
                               : b->kind == LA_WRITE && b->s.dv > 16 && (b->s.dv - 1) % 16 < 8))
        b->set = 1;
#endif
}

/* How many rows and tokens a block has. */
LINATTN__INLINE void la_rule_size(la_rule *b, const linattn__span *s, int logs)
{
    const int is_exp = LINATTN__IS_EXP(s->params->map), one = is_exp || s->group > 1;
    const int vectors = LA_VECTORS(s);
    const size_t tokens = vectors ? 32 : 2, floats = vectors ? 8192 : 384;
    const int wide = vectors && s->m > 192 && !b->reads && !one && !LINATTN__PAST(s);
    size_t arrays = b->in_place ? 0 : 2;
    /* exp takes up to 128, one token at a time and with an array less */
    b->step = is_exp ? linattn__chunk(s->m) : vectors ? 512 : b->each ? 64 : 96;
    if (wide) b->step = 128; /* so many rows of wide tiles stay in L1 */
    b->row = s->m < b->step ? linattn__round16(s->m) : b->step;
    if (vectors) b->row += 16; /* no power of two, or L1 sets clash */
    if (logs) arrays++;
    if ((b->rule == LINATTN_RULE_GATED_DELTA && !b->owes) || (LINATTN__PAST(s) && b->in_place))
        arrays++;
    if (b->each)
        arrays = b->rule == LINATTN_RULE_GENERAL ? 5 : b->reads ? 4 : 3;
    else if (b->reading && b->in_place)
        arrays++;
    arrays *= b->row; /* floats for each token: what is made is to stay in L1 */
    b->most = vectors && arrays > b->row ? tokens / 2 : tokens;
    b->whole = s->m <= b->step;
    /* where exponents move, what was read would, too */
    b->carries = vectors && b->reads && b->whole && b->s.column_end <= tokens * 16 && !is_exp &&
                 !LINATTN__ELEMENT(s);
    b->beyond = 0;
    if (arrays * (b->most + b->carries) > floats) b->most = floats / arrays - b->carries;
    if (one || (!b->whole && !wide)) b->most = 1;
    if (b->each && LA_LANES(s) == 16) { /* a tenth less time where another thread shares L1 */
        const size_t few = s->m > 64 ? 12 : b->reads ? 8 : 9;
        if (b->most > few) b->most = few;
    }
    if (b->most > 3 && (LA_LANES(s) == 8 || (LA_LANES(s) == 16 && !b->reads)))
        b->most -= b->most % 3; /* as tiles take them */
}

/* What all heads share. */
static LINATTN__NOINLINE void la_rule_open(la_rule *b, const linattn__recurrence *x, la_tokens *w,
                                           float *made)
{
    size_t array;
    int logs;
    la_rule_span(&b->s, x);
    b->x = x;
    b->w = w;
    la_rule_kind(b, x);
    logs = b->per_feature && x->gates->logs;
    la_rule_size(b, x->span, logs);
    array = (b->most + b->carries) * b->row;
    b->k_made = b->q_made = b->a_made = b->r_made = b->write_made = NULL;
    if (!b->in_place || b->each) {
        b->k_made = made;
        b->q_made = made + array;
        made += 2 * array;
    } else if (b->reading) {
        b->q_made = made;
        made += array;
    }
    if (logs || b->each) {
        b->a_made = made;
        made += array;
    }
    if ((b->rule == LINATTN_RULE_GATED_DELTA && !b->owes) || (b->each && b->reads)) {
        b->r_made = made;
        b->write_made = made + array; /* of GENERAL */
    }
#if LINATTN__HAS_COMPENSATED
    b->past = x->span->past;
    b->p_made = b->in_place ? made : b->q_made;
#endif
}

/* Decays that all rows shared so far count for each of them from now on. */
LINATTN__COLD static LINATTN__NOINLINE void la_rule_spread(la_rule *b)
{
    float *const credit = b->scalars + LINATTN__CREDIT, *const kept = b->scalars + LINATTN__KEPT;
    size_t f;
    if (*credit == 1.0f && *kept == 1.0f) return;
    for (f = 0; f < b->s.m; f++) {
        b->credit[f] = b->credit[f] * *credit;
        b->kept[f] = linattn__flush(b->kept[f] * *kept);
    }
    *credit = *kept = 1.0f;
}

/* The pointers of one key/value head. */
static LINATTN__NOINLINE void la_rule_head(la_rule *b, size_t head)
{
    const linattn__span *const all = b->x->span;
    const size_t m16 = linattn__round16(all->m), key = head / b->x->key_group;
    const linattn__gating *const g = b->x->gates;
    float *const at = all->z + head * all->head_floats;
    int i;
    b->s.z = b->x->own ? b->x->own : at;
    b->s.e = b->s.z + m16;
    b->kept = b->s.e + m16;
    b->credit = b->kept + m16;
    b->scalars = b->credit + m16;
    b->corrected = b->whole ? b->w->lanes : at + 4 * m16 + 16;
    b->carried = 0;
#if LINATTN__HAS_COMPENSATED
    b->since = at + b->past + 2 * m16;
#endif
    b->s.s = at + (all->s - all->z);
    b->s.k = all->k ? all->k + key * all->k_head : NULL;
    b->s.v = all->v ? all->v + head * all->v_head : NULL;
    b->s.q = all->q ? all->q + (b->x->key_group > 1 ? key : head * all->group) * all->q_head : NULL;
    b->s.out = all->q ? all->out + head * all->group * all->out_head : NULL;
    for (i = 0; g && i < g->count; i++) {
        const int which = g->given[i];
        const size_t h = which == LINATTN__READ || which == LINATTN__WRITE ? key : head;
        b->gate[which] = g->gate[which].at + h * g->gate[which].head;
    }
    b->rows = 0;
    if (!b->normal && !LINATTN__PAST(all) && !LINATTN__ELEMENT(all))
        b->rows = b->scalars[LINATTN__ROWS] != 0.0f;
    if (b->per_feature) la_rule_spread(b);
#if LA_RULE_WIDE
    if (LA_VECTORS(all) && all->fetch) {
        const size_t width = linattn__round16(b->s.column_end - b->s.column_begin);
        linattn__list_ahead(b->x, head, &b->ahead);
        b->fetch = (b->ahead.all * 16 + width - 1) / width;
    }
#endif
}
#endif

/* How many tokens from t, as many as a block has at most, are all masked, or all not. */
static size_t la_rule_alike(const la_rule *b, size_t t, int *masked)
{
    const size_t most = b->s.n - t < b->most ? b->s.n - t : b->most;
    const float *const key = b->s.k + t * b->s.k_token;
    size_t count = 1;
    *masked = linattn__masked(key, b->s.d);
    while (count < most && linattn__masked(key + count * b->s.k_token, b->s.d) == *masked) count++;
    return count;
}

/* Tokens of the head from t on. */
static LINATTN__NOINLINE void la_rule_turn(la_rule *b, size_t t)
{
    size_t g, count;
    for (; t < b->s.n; t += count) {
        int masked = 1;
        count = b->s.n - t < b->most ? b->s.n - t : b->most;
        if (b->s.k) count = la_rule_alike(b, t, &masked);
        if (!masked) la_rule_block(b, t, count);
        for (g = 0; masked && b->s.q && g < b->s.group; g++)
            la_rule_read(b, t, count, g, b->s.seen + (b->s.k ? t + 1 : 0), b->s.k != NULL, 0);
    }
    if (b->s.k && b->s.column_end == b->s.dv) la_rule_padding(&b->s, b->s.s);
}

/* What comes behind the last tokens of a turn: the first of another head, or those of the next
   turn. */
static void la_rule_after(la_rule *b, size_t head, size_t begin, size_t end)
{
#if LA_RULE_WIDE
    const linattn__recurrence *const x = b->x;
    if (!b->s.fetch || !LA_VECTORS(x->span)) return;
    b->after_begin = x->next ? x->next_begin : begin;
    b->after_end = x->next ? x->next_end : end;
    linattn__list_ahead(x, head, &b->after);
#else
    (void)b;
    (void)head;
    (void)begin;
    (void)end;
#endif
}

/* As linattn__run_heads. */
static LINATTN__NOINLINE void la_rule_heads(const linattn__recurrence *x, size_t head, size_t end)
{
    const size_t first = head, n = x->span->n;
    float made[LA_RULE_FLOATS];
    la_tokens w;
    la_rule b;
    size_t t, turn = n;
    la_rule_open(&b, x, &w, LA_W > 1 ? (float *)linattn__align(made) : made);
    if (end - head > 1)
        turn = linattn__turn(x->span, LINATTN__TURN > b.most ? LINATTN__TURN / b.most * b.most
                                                             : LINATTN__TURN);
    for (t = 0; t < n; t = b.s.n)
        for (head = first; head < end; head++) {
            la_rule_head(&b, head);
            b.s.n = n - t > turn ? t + turn : n;
            if (head + 1 < end)
                la_rule_after(&b, head + 1, t, b.s.n);
            else
                la_rule_after(&b, first, b.s.n, n);
            la_rule_turn(&b, t);
        }
}

#if LA_W > 1
/* One token of heads as a whole. */
static LINATTN__NOINLINE void la_rule_single(const linattn__recurrence *x)
{
    size_t head = x->head;
    while (head < x->head_end && (head = la_rule_once(x, head)) < x->head_end) {
        la_rule_heads(x, head, head + 1);
        head++;
    }
}

/* Few tokens one by one: a block of them would take longer to begin than they do. */
static LINATTN__NOINLINE void la_rule_singles(const linattn__recurrence *x)
{
    linattn__recurrence y = *x;
    linattn__span s = *x->span;
    linattn__gating g = *x->gates;
    const size_t n = s.n;
    size_t t = 0;
    int i;
    s.n = 1;
    y.span = &s;
    y.gates = &g;
    for (;;) {
        la_rule_single(&y);
        if (++t == n) return;
        s.k += s.k_token;
        s.v += s.v_token;
        if (s.q) {
            s.q += s.q_token;
            s.out += s.out_token;
        }
        s.seen++;
        for (i = 0; i < g.count; i++) g.gate[g.given[i]].at += g.gate[g.given[i]].token;
    }
}
#endif

static void la_recurrent(const linattn__recurrence *x)
{
#if LA_W > 1
    if (la_rule_is_once(x)) {
        if (x->span->n == 1)
            la_rule_single(x);
        else
            la_rule_singles(x);
        return;
    }
#endif
    la_rule_heads(x, x->head, x->head_end);
}
#endif
#endif

#if LINATTN__HAS_WINDOW
/* ---- Windows --------------------------------------------------------------------------------- */

#if LA_WALK
/* The span of a part of a head: z, exponents and S one after the other. That of the sum, which
   comes first, is the head's own, but that its columns include those of single keys. */
LINATTN__INLINE linattn__span la_part(const linattn__span *s, float *part)
{
    linattn__span x = *s;
    x.z = part;
    x.e = part + (s->m + 15) / 16 * 16;
    x.s = x.e + (s->m + 15) / 16 * 16;
    x.column_end = s->dv;
    return x;
}
#endif

#if LA_WALK
static void la_part_clear(const linattn__span *s, float *part)
{
    const size_t m16 = linattn__round16(s->m);
    size_t f;
    linattn__zeros(part, s->band->part_floats);
    for (f = 0; LINATTN__IS_EXP(s->params->map) && f < m16; f += LA_W)
        la_store(part + m16 + f, la_set1(-LINATTN__INF));
}

static LINATTN__NOINLINE void la_part_add(const linattn__span *s, float *part, float *other)
{
    const linattn__span to = la_part(s, part), from = la_part(s, other);
    LA_OF(s, merge)(&to, &from);
}
#endif

#if LA_COLD
/* part = the middle of the window of token i. */
static LINATTN__NOINLINE void la_part_middle(const linattn__span *s, const linattn__band_parts *b,
                                             float *part, uint64_t i)
{
    const linattn__band *band = s->band;
    const float *slot = b->parts;
    if (band->middle == 0) {
        la_part_clear(s, part);
        return;
    }
    slot += (size_t)(i / LINATTN__BAND % band->middle) * band->part_floats;
    if (LINATTN__IS_EXP(s->params->map) || LINATTN__IS_SIGNED(s->params->map)) {
        la_copy(part, slot, band->part_floats);
        la_part_add(s, part, b->prefix);
        return;
    }
    LA_HOT(s, sum_of)(part, slot, b->prefix, band->part_floats);
}
#endif

/* phi(k) of `count` keys without exponents, to be kept. */
static LINATTN__NOINLINE void la_keep_keys(const linattn__span *s, const float *key, size_t count,
                                           float *to)
{
    const linattn__params local = *s->params, *p = &local; /* which no store can change */
    const size_t d = s->d;
    size_t f;
    for (; count > 0; count--, key += s->k_token, to += d) {
        for (f = 0; f < d; f += LA_W) {
            const int lanes = la_lanes_left(d, f);
            const la_vec x = la_mul(la_load_most(key + f, lanes), la_set1(p->root));
            const la_vec phi = la_plain(x, p, p->map);
            if (lanes < LA_W)
                la_store_part(to + f, phi, lanes);
            else
                la_store(to + f, phi);
        }
    }
}

/* phi(k) of the run's tokens into k, where keys are not kept so. */
LINATTN__INLINE void la_map_columns(const linattn__span *sum, float *k, const la_chunk *c)
{
    const linattn__params local = *sum->params, *p = &local; /* which no store can change */
    /* elu1's are kept: what is not exp is a maximum, as relu or, with no floor, the identity */
    const int map = LINATTN__IS_EXP(p->map) ? LINATTN_MAP_EXP : LINATTN_MAP_RELU;
    const size_t row = c->k.row;
    size_t f, t;
    for (f = c->f0; f < c->f1; f += LA_W) {
        const int lanes = la_lanes_left(c->f1, f);
        const la_vec e = la_key_exponent(la_load(sum->e + f));
        const float *from = c->k.at + c->t * row + (f - c->f0);
        for (t = c->t; t < c->end; t++, from += row) {
            la_vec phi = la_phi_key(p, from, lanes, e, map);
            if (LINATTN__IS_EXP(map))
                phi = la_select(la_gt(la_set1(LINATTN__KEY_MIN), phi), la_zero(), phi);
            la_store(k + t * LA_ROW + (f - c->f0), phi);
        }
    }
}

/* phi(k) of the run's tokens, as kept or made in k, become columns, that of token 0 being `column`.
 */
static LINATTN__NOINLINE void la_put_columns(const linattn__span *sum, float *k, const la_chunk *c,
                                             size_t column)
{
    float *const panels = sum->s + (sum->dv + 15) / 16 * 16 * sum->m;
    const int kept = linattn__keeps_phi(sum->params);
    const float *const phi = kept ? c->k.at : k;
    const size_t row = kept ? c->k.row : LA_ROW;
    size_t t, f, i;
    if (!kept) la_map_columns(sum, k, c);
    for (t = c->t; t < c->end;) {
        float *const to = panels + (column + t) / 16 * 16 * sum->m + (column + t) % 16;
        const size_t count = c->end - t >= LA_W && (column + t) % LA_W == 0 ? LA_W : 1;
        for (f = c->f0; f < c->f1; f += LA_W) {
            const size_t lanes = (size_t)la_lanes_left(c->f1, f);
            const float *from = phi + t * row + (f - c->f0);
            la_vec a[LA_W];
            if (count == 1) {
                for (i = 0; i < lanes; i++) to[(f + i) * 16] = from[i];
                continue;
            }
            la_transpose(from, row, a);
            for (i = 0; i < lanes; i++) la_store(to + (f + i) * 16, a[i]);
        }
        t += count;
    }
}

#if LA_WALK
/* Columns of tokens that are not there, or masked. */
LINATTN__COLD static void la_clear_columns(const linattn__span *sum, size_t column, size_t count)
{
    float *const panels = sum->s + (sum->dv + 15) / 16 * 16 * sum->m;
    size_t c, f;
    for (c = column; c < column + count; c++)
        for (f = 0; f < sum->m; f++) panels[c / 16 * 16 * sum->m + f * 16 + c % 16] = 0.0f;
}

/* Columns of features [f0, f1) for `count` kept tokens that are not masked, with no query that
   looks on. */
LINATTN__COLD static LINATTN__NOINLINE void la_append(const linattn__span *sum, const float *keys,
                                                      size_t count, size_t f0, size_t f1,
                                                      size_t column)
{
    const size_t step = linattn__chunk(sum->m);
    float k[LA_BLOCK * LA_ROW];
    la_chunk c;
    for (c.f0 = f0; c.f0 < f1; c.f0 = c.f1) {
        c.f1 = f1 - c.f0 < step ? f1 : c.f0 + step;
        c.k = la_inputs(sum, keys, sum->d, count, c.f0, c.f1, k, LA_ROW);
        for (c.t = 0; c.t < count; c.t = c.end) {
            c.end = count;
            if (LINATTN__IS_EXP(sum->params->map))
                c.end = LA_OF(sum, run)(sum, c.f0, c.f1, &c.k, c.t, count);
            LA_OF(sum, put_columns)(sum, k, &c, column);
        }
    }
}
#endif

#if LA_COLD
/* Are `rows` rows of n values all finite? Two sums, as one would wait. */
static LINATTN__NOINLINE int la_all_finite(const float *v, size_t row, size_t rows, size_t n)
{
    enum { SUMS = LA_W > 1 ? 2 : 1 };
    la_vec sum[2];
    size_t c, i;
    sum[0] = sum[1] = la_zero();
    for (; rows > 0; rows--, v += row) {
        for (c = 0; n - c >= SUMS * LA_W; c += SUMS * LA_W) {
            LINATTN__UNROLL for (i = 0; i < SUMS; i++)
            {
                const la_vec x = la_load(v + c + i * LA_W);
                sum[i] = la_add(sum[i], la_sub(x, x)); /* 0, or NaN */
            }
        }
        for (; c < n; c += LA_W) {
            const la_vec x = la_load_part(v + c, la_lanes_left(n, c));
            sum[0] = la_add(sum[0], la_sub(x, x));
        }
    }
    return !la_any(la_unordered(la_add(sum[0], sum[1])));
}

/* Values of `count` keys, zeros for the first `unseen` of them, into the panels that scores meet.
   Only if all are finite may several tokens share a tile, as those that a token does not see have
   the weight 0. */
static LINATTN__NOINLINE void la_put_values(const linattn__span *s, const linattn__band_parts *b,
                                            const float *v, size_t v_token, size_t unseen,
                                            size_t count, size_t column)
{
    float *to = b->panels + column * 16;
    const size_t panel = s->band->columns * 16, dv = s->dv;
    size_t t, c;
    for (t = 0; t < count; t++, to += 16) {
        const float *const from = t < unseen ? NULL : v + t * v_token;
        for (c = 0; from && dv - c >= LA_W; c += LA_W)
            la_store(to + c / 16 * panel + c % 16, la_load(from + c));
        for (; c < dv; c += LA_W)
            la_store(to + c / 16 * panel + c % 16,
                     from ? la_load_part(from + c, la_lanes_left(dv, c)) : la_zero());
    }
}
#endif

#if LA_WALK
/* The maps whose denominators need z itself are read out token by token, from a state that holds
   just the window: those of the signed maps cancel, which sums of scores would not bear. */
LINATTN__INLINE int la_always_apart(const linattn__params *p)
{
    return p->norm == LINATTN_NORM_FEATURE ||
           (p->norm == LINATTN_NORM_SUM && LINATTN__IS_SIGNED(p->map));
}

/* How many of the tokens from `key` on that are kept, before `end` and at most 16, are all masked
   or absent, or all not. */
static LINATTN__NOINLINE size_t la_kept_alike(const linattn__span *s, const linattn__band_parts *b,
                                              uint64_t key, uint64_t end, int *masked)
{
    const size_t at = linattn__kept(s, key), row = at % LINATTN__BAND;
    const uint64_t there = s->keys;
    size_t count = LA_BLOCK < 16 ? LA_BLOCK : 16;
    linattn__span kept = *s;
    *masked = 1;
    if (end > there && key < there) end = there;
    if (count > end - key) count = (size_t)(end - key);
    if (key >= there) return count;
    kept.k = b->keys + (at - row) * s->d;
    kept.k_token = s->d;
    kept.n = LINATTN__BAND;
    return la_alike(&kept, row, count, masked);
}

/* Columns and values of the last sub-blocks become those of the left ones, as they are. */
static void la_band_shift(const linattn__span *sum, const linattn__band_parts *b)
{
    const linattn__band *band = sum->band;
    const size_t panel = LINATTN__BAND * sum->m, rows = LINATTN__BAND * 16;
    float *to = sum->s + (sum->dv + 15) / 16 * 16 * sum->m;
    size_t i, c;
    for (i = 0; i < band->left; i++, to += panel)
        linattn__copy(to, to + panel, panel * sizeof(float));
    for (c = 0, to = b->panels; c < sum->dv; c += 16, to += rows)
        for (i = 0; i < band->left; i++, to += rows)
            linattn__copy(to, to + rows, rows * sizeof(float));
}

/* The sub-block of token i begins: its middle, and the columns of the left sub-blocks, in whole
   vectors of them. What the columns of the sub-block itself hold from before weighs nothing. */
LINATTN__COLD static LINATTN__NOINLINE void
la_band_begin(const linattn__span *s, linattn__span *sum, const linattn__band_parts *b, uint64_t i)
{
    const linattn__band *band = s->band;
    const int exponents = LINATTN__IS_EXP(s->params->map);
    uint64_t key, first, end;
    size_t count, column, t;
    if (band->middle == 0 && linattn__keeps_phi(s->params) && i > 0 && !(*b->odd > 0.0f)) {
        la_band_shift(sum, b);
        return;
    }
    LA_OF(s, part_middle)(s, b, b->sum, i);
    linattn__copy(b->exponents, sum->e, (s->m + 15) / 16 * 16 * sizeof(float));
    if (*b->odd > 0.0f) linattn__zeros(b->panels, (s->dv + 15) / 16 * 16 * band->columns);
    *b->odd = 0.0f;
    end = linattn__left_keys(s, i, &first);
    column = (band->left * LINATTN__BAND - (size_t)(end - first)) / 16 * 16;
    key = end - (band->left * LINATTN__BAND - column);
    for (; key < end; key += count, column += count) {
        const size_t at = linattn__kept(s, key);
        /* exponents follow the keys that are seen, and no others */
        int masked, unseen = exponents && key < first;
        count = la_kept_alike(s, b, key, unseen ? first : end, &masked);
        if (masked || unseen)
            la_clear_columns(sum, column, count);
        else
            la_append(sum, b->keys + at * s->d, count, 0, s->m, column);
        t = first > key ? (size_t)(first - key) : 0;
        if (!masked && t < count &&
            !LA_OF(s, all_finite)(b->values + (at + t) * s->dv, 0, 1, (count - t) * s->dv))
            *b->odd = 1.0f;
        if (masked || t > count) t = count;
        LA_OF(s, put_values)(s, b, b->values + at * s->dv, s->dv, t, count, column);
    }
}

/* Tokens [key, end) of those that are kept, if they came at all, are added to a part. */
static LINATTN__NOINLINE void la_add_kept(const linattn__span *s, const linattn__band_parts *b,
                                          float *part, uint64_t key, uint64_t end)
{
    linattn__span x = la_part(s, part);
    linattn__params p = *s->params;
    if (end > s->keys) end = s->keys;
    if (linattn__keeps_phi(&p)) { /* which this takes as it is */
        p.map = LINATTN_MAP_RELU;
        p.root = 1.0f;
        p.floor = 0.0f;
        x.params = &p;
    }
    x.k_token = s->d;
    x.v_token = s->dv;
    x.fetch = 0;
    for (; key < end; key += x.n) {
        const size_t at = linattn__kept(s, key), left = LINATTN__BAND - at % LINATTN__BAND;
        x.k = b->keys + at * s->d;
        x.v = b->values + at * s->dv;
        x.n = end - key < left ? (size_t)(end - key) : left;
        la_update(&x);
    }
}

/* The sub-block that began with token i is complete. */
static LINATTN__NOINLINE void la_band_end(const linattn__span *s, const linattn__band_parts *b,
                                          uint64_t i)
{
    const linattn__band *band = s->band;
    const size_t part = band->part_floats;
    size_t at;

    if (band->middle == 0) return;
    at = (size_t)(i / LINATTN__BAND % band->middle);
    la_part_clear(s, b->parts + at * part);
    la_add_kept(s, b, b->parts + at * part, i, i + LINATTN__BAND);
    if (at + 1 < band->middle) {
        la_part_add(s, b->prefix, b->parts + at * part);
        return;
    }
    for (; at > 0; at--) la_part_add(s, b->parts + (at - 1) * part, b->parts + at * part);
    la_part_clear(s, b->prefix);
}

/* The read-out of token t for `heads` query heads from g on, from a state of its own. */
static LINATTN__NOINLINE void la_band_apart(const linattn__span *s, const linattn__band_parts *b,
                                            size_t t, size_t g, size_t heads)
{
    const uint64_t i = s->seen + t, begin = i - i % LINATTN__BAND;
    uint64_t first, end = linattn__left_keys(s, i, &first);
    linattn__span x = la_part(s, b->spare);
    LA_OF(s, part_middle)(s, b, b->spare, i);
    la_add_kept(s, b, b->spare, first, end);
    first = begin + s->window < i + 1 ? i + 1 - s->window : begin;
    la_add_kept(s, b, b->spare, first, i + 1);
    x.seen = la_visible(s, t);
    x.band = NULL;
    x.window = 0;
    x.q = s->q + (t - s->lag) * s->q_token + g * s->q_head;
    x.out = s->out + (t - s->lag) * s->out_token + g * s->out_head;
    x.group = heads;
    x.n = 1;
    x.fetch = 0;
    la_query(&x);
}
#endif

#define LA_LEVEL_BEGIN (LINATTN__HEADROOM + 1.0f - LINATTN__LEVEL) /* the least n of a level */

/* Does one of the keys of columns [column, end) make the exponent of feature f what it is, in the
   units of what they hold? It has moved that of the middle by exceeding it by the headroom. */
static int la_upheld(const linattn__span *sum, const linattn__band_parts *b, size_t f,
                     size_t column, size_t end)
{
    const float *const row = sum->s + (sum->dv + 15) / 16 * 16 * sum->m + f * 16;
    const float e = sum->e[f], level = e + LA_LEVEL_BEGIN;
    float least = b->exponents[f] + LINATTN__HEADROOM, p = 1.0001f; /* if in doubt, no */
    if (level > least) {
        least = level;
        p = 0.725f; /* it is .7 to 1.42 */
    }
    p = p * linattn__pow2((int)(least - e - LINATTN__BIAS));
    while (end > column) {
        end--; /* compared as a difference: NaN takes gcc's branch for memory under -ffast-math */
        if (row[end / 16 * 16 * sum->m + end % 16] - p > 0.0f) return 1;
    }
    return 0;
}

/* Are the exponents of a chunk what they were if none but the keys that are seen had come: that of
   the middle, or the level of one of them? `key` is the token's own if it has one, columns
   [column, end) are those of the others. A wrong no costs time only. */
static LINATTN__NOINLINE int la_current(const linattn__span *sum, const linattn__band_parts *b,
                                        const la_chunk *c, const float *key, size_t column,
                                        size_t end)
{
    const la_vec one = la_set1(1.0f), none = la_set1(-LINATTN__INF);
    size_t f, i;
    for (f = c->f0; f < c->f1; f += LA_W) {
        const int lanes = la_lanes_left(c->f1, f);
        const la_vec e = la_load(sum->e + f), middle = la_load(b->exponents + f);
        const la_mask moved = la_gt(e, middle);
        la_vec x = none, n = none;
        float lost[LA_W];
        if (!la_any(moved)) continue;
        if (key) x = la_first(la_load_part(key + (f - c->f0), lanes), none, lanes);
        if (key) n = la_exponent(x, sum->params);
        n = la_select(la_gt(la_add(e, la_set1(LA_LEVEL_BEGIN)), n), one, la_zero());
        n = la_select(la_moving(sum->params, x, middle), n, one);
        la_store(lost, la_select(moved, n, la_zero()));
        for (i = 0; i < LA_W; i++)
            if (lost[i] > 0.0f && !la_upheld(sum, b, f + i, column, end)) return 0;
    }
    return 1;
}

#if LA_WALK
/* Kept tokens [key, end) become columns of a chunk's features. */
static LINATTN__NOINLINE void la_put_kept(const linattn__span *s, linattn__span *sum,
                                          const linattn__band_parts *b, const la_chunk *c,
                                          uint64_t key, uint64_t end, size_t column)
{
    size_t count;
    for (; key < end; key += count, column += count) {
        int masked;
        count = la_kept_alike(s, b, key, end, &masked);
        if (!masked)
            la_append(sum, b->keys + linattn__kept(s, key) * s->d, count, c->f0, c->f1, column);
    }
}

/* Features of a chunk afresh, where exponents have moved: the middle, and the columns of the keys
   before token i that it sees. */
LINATTN__COLD static LINATTN__NOINLINE void la_afresh(const linattn__span *s, linattn__span *sum,
                                                      const linattn__band_parts *b,
                                                      const la_chunk *c, uint64_t i)
{
    const linattn__span from = la_part(s, b->spare);
    const size_t column = linattn__first_column(s, i);
    const size_t left = s->band->left * LINATTN__BAND, own = column > left ? column : left;
    uint64_t first, end = linattn__left_keys(s, i, &first);
    la_chunk part;
    size_t u, f;
    LA_OF(s, part_middle)(s, b, b->spare, i);
    for (f = c->f0; f < c->f1; f += 16) {
        const size_t rows = c->f1 - f < 16 ? c->f1 - f : 16;
        int moved = 0;
        for (u = 0; u < 16; u += LA_W)
            moved |= la_any(la_gt(la_load(sum->e + f + u), la_load(from.e + f + u)));
        if (!moved) continue; /* since the sub-block began */
        linattn__copy(sum->z + f, from.z + f, rows * sizeof(float));
        linattn__copy(sum->e + f, from.e + f, rows * sizeof(float));
        for (u = 0; u < s->dv; u += 16)
            linattn__copy(sum->s + u * s->m + f * 16, from.s + u * s->m + f * 16,
                          rows * 16 * sizeof(float));
        part.f0 = f;
        part.f1 = f + rows;
        la_put_kept(s, sum, b, &part, first, end, column);
        la_put_kept(s, sum, b, &part, i - i % LINATTN__BAND + (own - left), i, own);
    }
}
#endif

/* Makes the exponents of a chunk those that token t of a block at token i of all has, and returns
   the end of the tokens that leave them so. */
static LINATTN__NOINLINE size_t la_band_settle(const linattn__span *s, linattn__span *sum,
                                               const linattn__band_parts *b, const la_chunk *c,
                                               uint64_t i, int keys)
{
    const float *key = keys ? c->k.at + c->t * c->k.row : NULL;
    const size_t own = s->band->left * LINATTN__BAND + (size_t)((i + c->t) % LINATTN__BAND);
    size_t t = c->t + 1;
    if (!la_current(sum, b, c, key, linattn__first_column(s, i + c->t), own))
        la_afresh(s, sum, b, c, i + c->t);
    if (keys) la_settle(sum, c->f0, c->f1, key);
    for (; t < c->count; t++) {
        if (keys) key += c->k.row;
        if (!la_current(sum, b, c, key, linattn__first_column(s, i + t), own)) break;
        if (keys && la_moves(sum, c->f0, c->f1, key)) break;
    }
    return t;
}

#if LA_WALK
/* One run of a chunk: stages it, and reads out S and, as `scores`, the columns beside it, `wide` of
   them from `column` on. */
LINATTN__COLD static LINATTN__NOINLINE void la_band_run(linattn__span *sum, la_scratch *w,
                                                        float *scores, la_chunk *c, la_tile *a,
                                                        size_t column, size_t wide, const float *q)
{
    const size_t columns = sum->column_end, out_token = sum->out_token, out_head = sum->out_head;
    const size_t dv = sum->dv;
    float *const out = a->out, *const sums = sum->s;
    size_t g;
    for (g = 0; g < a->heads; g++) {
        c->row0 = g * c->count;
        c->query = q + g * sum->q_head;
        c->q.at =
            sum->params->source == LINATTN__DIRECT ? c->query + c->f0 : w->q + c->row0 * LA_ROW;
        c->out = sum->band->middle ? out + g * sum->out_head : NULL;
        c->scores = scores + c->row0 * LA_ROW;
        if (LINATTN__IS_EXP(sum->params->map)) la_peaks(sum, w, c);
        LA_OF(sum, stage)(sum, w, c, 0);
    }
    a->begin = c->t;
    a->end = c->end;
    a->f0 = c->f0;
    a->f1 = c->f1;
    a->first = c->first;
    a->last = 0;
    sum->s = sums + ((dv + 15) / 16 * 16 + column) * sum->m;
    sum->dv = sum->band->columns - column;
    sum->column_end = wide;
    sum->out_token = LA_ROW;
    sum->out_head = c->count * LA_ROW;
    a->out = scores;
    LA_OF(sum, read_tiles)(a);
    sum->s = sums;
    sum->dv = sum->column_end = dv;
    sum->out_token = out_token;
    sum->out_head = out_head;
    a->out = out;
    if (sum->band->middle) LA_OF(sum, read_tiles)(a);
    sum->column_end = columns;
}
#endif

/* Scores of keys that a token does not see become 0, as far as values are read for its block; the
   others enter the denominators. Returns whether a lane of these is not finite. */
static LINATTN__NOINLINE int la_band_mask(const linattn__span *s, la_scratch *w, float *scores,
                                          size_t t0, size_t count, size_t heads, size_t column)
{
    const uint64_t i = s->seen + t0;
    const size_t own = s->band->left * LINATTN__BAND + (size_t)(i % LINATTN__BAND);
    la_vec beyond = la_zero();
    size_t g, t, j;
    for (t = 0; t < count; t++) {
        const size_t first = linattn__first_column(s, i + t), end = own + t + 1;
        for (g = 0; g < heads; g++) {
            float *at = scores + (g * count + t) * LA_ROW;
            float *const den = w->den + (g * count + t) * 16;
            la_vec sum[LA_PANEL_VECS];
            LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++) sum[j] = la_load(den + j * LA_W);
            for (j = column; j < own + count; j += LA_W) {
                la_vec x = la_load(at), *const lane = sum + (LA_W > 1 ? 0 : j % 16);
                if (j < first) x = la_first(la_zero(), x, la_lanes_left(first, j));
                if (j + LA_W > end) x = la_first(x, la_zero(), j < end ? (int)(end - j) : 0);
                la_store(at, x);
                at += LA_W;
                *lane = la_add(*lane, x);
                la_turn(sum);
            }
            for (; j % 16 != 0; j += LA_W) la_turn(sum);
            LA_EACH_VEC for (j = 0; j < LA_PANEL_VECS; j++)
            {
                la_store(den + j * LA_W, sum[j]);
                beyond = la_add(beyond, la_sub(sum[j], sum[j])); /* 0, or NaN */
            }
        }
    }
    return la_any(la_unordered(beyond));
}

#if LA_WALK
/* Is a lane of a denominator not finite? Scores may be beyond floats where their products with
   small values are not. */
LINATTN__COLD static int la_is_beyond(const float *den)
{
    size_t i = 0;
    while (i < 16 && (linattn__to_bits(den[i]) & 0x7fffffffu) < 0x7f800000u) i++;
    return i < 16;
}

/* A block of tokens within 16 that stand together, which query; `keys` says whether their keys are
   to be added. */
LINATTN__COLD static LINATTN__NOINLINE void
la_band_block(const linattn__span *s, linattn__span *sum, const linattn__band_parts *b,
              la_scratch *w, float *scores, size_t t0, size_t count, size_t g0, size_t heads,
              int keys)
{
    const linattn__params *p = s->params;
    const uint64_t i = s->seen + t0;
    const size_t own = s->band->left * LINATTN__BAND + (size_t)(i % LINATTN__BAND);
    size_t column = linattn__first_column(s, i) / 16 * 16;
    const size_t step = linattn__chunk(s->m);
    const float *q = s->q + g0 * s->q_head + (t0 - s->lag) * s->q_token;
    const size_t columns = sum->column_end, m = s->m;
    float *const sums = sum->s, *const k = LA_BLOCK > 1 ? w->k : w->q;
    la_tile a;
    la_chunk c;
    int beyond;
    /* few tokens see few keys in vain, but an odd vector of theirs waits for its sums */
    const size_t few = LA_WIDEST(s) && (s->dv + 15) / 16 % 2 ? 8 : 4;
    size_t wide = s->band->columns - column, g;
    if (own + count < s->band->columns) wide = (own + count + 15) / 16 * 16 - column;
    if (LA_WIDEST(s) && count == 1 && wide == 48) { /* what one token reads at a time */
        wide = 64;
        if (column + wide > s->band->columns) column -= 16;
    }
    a.span = sum;
    a.k = a.q = w->q;
    a.v = a.q_in = NULL;
    a.by = w->scale;
    a.count = count;
    a.heads = heads;
    a.positive_zeros = a.keep = a.ahead = a.lowers = 0;
    a.out = s->out + g0 * s->out_head + (t0 - s->lag) * s->out_token;
    c.t0 = t0;
    c.count = count;
    c.keep = c.fresh = 0;
    c.own = 1;
    c.k_ahead = 0;
    c.q_ahead = p->source == LINATTN__DIRECT && s->n - t0 >= 2 * count
                    ? (ptrdiff_t)(count * s->q_token)
                    : 0;
    c.columns = wide;
    c.q.row = p->source == LINATTN__DIRECT ? s->q_token : LA_ROW;
    linattn__zeros(w->den, count * heads * 16);
    if (LINATTN__IS_SIGNED(p->map)) linattn__zeros(w->lost, count * heads * 16);
    for (c.f0 = 0; c.f0 < s->m; c.f0 = c.f1) {
        c.f1 = s->m - c.f0 < step ? s->m : c.f0 + step;
        c.first = c.f0 == 0;
        c.last = c.f1 == s->m;
        if (keys)
            c.k = la_inputs(s, linattn__kept_keys(s, b, t0), s->d, count, c.f0, c.f1, k, LA_ROW);
        for (c.t = 0; c.t < count; c.t = c.end) {
            c.end = count;
            if ((LA_BLOCK > 1 ? s->group == 1 : g0 == 0) && LINATTN__IS_EXP(p->map))
                c.end = LA_OF(s, band_settle)(s, sum, b, &c, i, keys);
            if (keys) LA_OF(sum, put_columns)(sum, k, &c, own); /* over the inputs */
            for (g = 0; c.t == 0 && g < heads && p->source != LINATTN__DIRECT; g++)
                (void)la_inputs(s, q + g * s->q_head, s->q_token, count, c.f0, c.f1,
                                w->q + g * count * LA_ROW, LA_ROW);
            la_band_run(sum, w, scores, &c, &a, column, wide, q);
        }
    }
    beyond = LA_OF(s, band_mask)(s, w, scores, t0, count, heads, column);
    c.t = 0;
    c.end = count;
    for (g = 0; g < heads; g++) {
        c.row0 = g * count;
        c.query = q + g * s->q_head;
        la_finish(s, w, &c);
    }
    sum->s = b->panels; /* of the values */
    sum->m = s->band->columns;
    sum->column_end = s->dv;
    a.first = s->band->middle == 0;
    a.last = a.positive_zeros = 1;
    for (a.begin = 0; a.begin < count; a.begin = a.end) {
        a.end = count - a.begin < 2 * few ? count : a.begin + few;
        a.f0 = linattn__first_column(s, i + a.begin);
        a.f1 = own + a.end;
        a.q = scores + (a.f0 - column);
        LA_OF(s, read_tiles)(&a);
    }
    sum->s = sums;
    sum->m = m;
    for (g = 0; g < heads; g++)
        LA_OF(s, end_rows)(s, w->power + g * count, a.out + g * s->out_head, count);
    for (g = 0; beyond && !LINATTN__IS_EXP(p->map) && g < heads * count; g++)
        if (la_is_beyond(w->den + g * 16)) {
            la_band_apart(s, b, t0 + g % count, g0 + g / count, 1);
            la_part_clear(s, b->spare); /* whichever came last */
        }
    sum->column_end = columns;
}
#endif

#if LA_COLD
/* `count` tokens of one kind are kept, with their values where scores meet them: all finite, or of
   one token alone. */
static LINATTN__NOINLINE void la_band_keep(const linattn__span *s, const linattn__band_parts *b,
                                           size_t t0, size_t count, size_t own, int masked)
{
    const int apart = la_always_apart(s->params), absent = s->seen + t0 >= s->keys;
    const int mapped = linattn__keeps_phi(s->params);
    const size_t at = linattn__kept(s, s->seen + t0);
    const int ahead = LA_W > 1 && !absent && s->keys - s->seen - t0 >= 2 * count;
    size_t t, f;
    for (t = 0; !absent && t < count; t++) {
        float *const key = b->keys + (at + t) * s->d, *const value = b->values + (at + t) * s->dv;
        const float *v;
        v = s->v + (t0 + t) * s->v_token;
        for (f = 0; ahead && f < s->d; f += 16)
            LINATTN__FETCH(s->k + (t0 + count + t) * s->k_token + f);
        for (f = 0; ahead && f < s->dv; f += 16) {
            LINATTN__FETCH(v + count * s->v_token + f);
            if (t0 >= s->lag) LINATTN__FETCH(s->out + (t0 + count + t - s->lag) * s->out_token + f);
        }
        if (masked || !mapped) la_copy(key, s->k + (t0 + t) * s->k_token, s->d);
        if (masked) {
            for (f = 0; f < s->dv; f++) value[f] = 0.0f;
        } else {
            la_copy(value, v, s->dv);
            if (count == 1 && !la_all_finite(v, 0, 1, s->dv)) *b->odd = 1.0f;
        }
    }
    if (mapped && !masked && !absent)
        LA_HOT(s, keep_keys)(s, s->k + t0 * s->k_token, count, b->keys + at * s->d);
    if (!apart)
        la_put_values(s, b, absent ? NULL : s->v + t0 * s->v_token, s->v_token,
                      masked || absent ? count : 0, count, own);
}
#endif

#if LA_WALK
/* They query, and their keys become columns unless `masked`. */
static LINATTN__NOINLINE void la_band_query(const linattn__span *s, linattn__span *sum,
                                            const linattn__band_parts *b, size_t t0, size_t count,
                                            int masked)
{
    const size_t chunk = LA_BLOCK / count;
    LINATTN__LINED la_scratch w;
    size_t g;
#if LA_BLOCK > 1
    /* [query head][token][key from the first that one sees], LA_ROW apart as tiles want them */
    LINATTN__LINED float scores[LA_BLOCK * LA_ROW];
#else
    float *const scores = w.k; /* of one token; its key is mapped in w.q */
#endif
    w.q = w.k + LA_BLOCK * LA_ROW + LA_SCORES;
    for (g = 0; g < s->group; g += chunk) {
        const size_t heads = s->group - g < chunk ? s->group - g : chunk;
        la_band_block(s, sum, b, &w, scores, t0, count, g, heads, g == 0 && !masked);
    }
}

/* Takes `count` tokens of one kind: they are kept, made columns, and query. */
static void la_band_tokens(const linattn__span *s, linattn__span *sum, const linattn__band_parts *b,
                           size_t t0, size_t count, int masked)
{
    const size_t own = s->band->left * LINATTN__BAND + (size_t)((s->seen + t0) % LINATTN__BAND);
    size_t t;
    LA_OF(s, band_keep)(s, b, t0, count, own, masked);
    if (la_always_apart(s->params)) {
        for (t = 0; t < count && t0 >= s->lag; t++) la_band_apart(s, b, t0 + t, 0, s->group);
        return;
    }
    if (masked) la_clear_columns(sum, own, count);
    if (t0 >= s->lag)
        la_band_query(s, sum, b, t0, count, masked);
    else if (!masked)
        la_append(sum, linattn__kept_keys(s, b, t0), count, 0, s->m, own);
}

/* Query heads that share keys come in several blocks, and all need the same exponents: how many of
   `count` tokens leave those alone that are made here for the first. A single head makes them as it
   goes, so that keys are projected once. */
static LINATTN__NOINLINE size_t la_band_still(const linattn__span *s, linattn__span *sum,
                                              const linattn__band_parts *b, size_t t0, size_t count,
                                              int masked)
{
    const size_t step = linattn__chunk(s->m);
    float k[LA_BLOCK * LA_ROW];
    la_chunk c;
    c.t = 0;
    c.count = count;
    for (c.f0 = 0; c.f0 < s->m; c.f0 = c.f1) {
        size_t end;
        c.f1 = s->m - c.f0 < step ? s->m : c.f0 + step;
        if (!masked)
            c.k = la_inputs(s, s->k + t0 * s->k_token, s->k_token, count, c.f0, c.f1, k, LA_ROW);
        end = LA_OF(s, band_settle)(s, sum, b, &c, s->seen + t0, !masked);
        if (end < c.count) c.count = end;
    }
    return c.count;
}

/* How many tokens from t are taken together: of one kind, within 16 that stand together, and alone
   where values are not finite, so that a 0 does not meet them. */
static size_t la_band_count(const linattn__span *s, const linattn__band_parts *b, size_t t,
                            int *masked)
{
    const size_t within = 16 - (size_t)((s->seen + t) % 16);
    size_t count = LA_BLOCK > 1 ? within : 1;
    if (count > s->n - t) count = s->n - t;
    if (t < s->lag && count > s->lag - t) count = s->lag - t;
    *masked = 1;
    if (s->seen + t >= s->keys) return *b->odd > 0.0f ? 1 : count;
    if (count > s->keys - s->seen - t) count = (size_t)(s->keys - s->seen - t);
    count = la_alike(s, t, count, masked);
    if (!LA_OF(s, all_finite)(s->v + t * s->v_token, s->v_token, count, s->dv)) return 1;
    return *b->odd > 0.0f ? 1 : count;
}

static void la_band(const linattn__span *s)
{
    const linattn__band *band = s->band;
    const int shared = LA_BLOCK > 1 && s->group > 1 && LINATTN__IS_EXP(s->params->map) &&
                       !la_always_apart(s->params);
    linattn__band_parts b;
    linattn__span *const sum = (linattn__span *)(uintptr_t)s; /* its job's own copy */
    size_t t, count, i;
    linattn__band_layout(s, s->z, &b);
    sum->column_end = (s->dv + 15) / 16 * 16 + band->columns;
    if (s->seen == 0) {
        for (i = 0; i < band->middle; i++) la_part_clear(s, b.parts + i * band->part_floats);
        la_part_clear(s, b.prefix);
    }
    for (t = 0; t < s->n; t += count) {
        const uint64_t at = s->seen + t;
        int masked;
        if (at % LINATTN__BAND == 0 && !la_always_apart(s->params)) la_band_begin(s, sum, &b, at);
        count = la_band_count(s, &b, t, &masked);
        if (shared && t >= s->lag) count = la_band_still(s, sum, &b, t, count, masked);
        la_band_tokens(s, sum, &b, t, count, masked);
        if ((at + count) % LINATTN__BAND == 0)
            la_band_end(s, &b, at / LINATTN__BAND * LINATTN__BAND);
    }
    sum->column_end = s->dv;
}
#endif
#endif

#if LINATTN__HAS_FEATURES
/* ---- Features -------------------------------------------------------------------------------- */

#if LA_WALK
/* What a block of tokens needs to be projected. */
typedef struct la_projection {
#if LA_BLOCK > 1
    float x[LA_BLOCK * LA_ROW]; /* x', of some coordinates */
#endif
    float factor[LA_BLOCK]; /* of x: sqrt(s), or what keeps a large x' small */
    float power[LA_BLOCK];  /* what that leaves out, or 0 */
    float lower[LA_BLOCK];  /* |x'|^2 / 2, or 0 */
} la_projection;
#endif

#if LA_COLD
/* The sum of (x factor)^2; and x factor into `to`, unless that is NULL: what is so small that its
   products might be denormal is 0. */
LINATTN__INLINE float la_square(const float *x, size_t d, float factor, float *to)
{
    la_vec sum[LA_PANEL_VECS];
    size_t i;
    for (i = 0; i < LA_PANEL_VECS; i++) sum[i] = la_zero();
    for (i = 0; i < d; i += LA_W) {
        const la_vec y = la_mul(la_load_part(x + i, la_lanes_left(d, i)), la_set1(factor));
        const size_t j = LA_W > 1 ? 0 : i % 16;
        if (to) la_store(to + i, la_flush(y, la_set1(1e-18f)));
        sum[j] = la_fma(y, y, sum[j]);
        la_turn(sum); /* where they end changes no sum; scalar code has them in memory */
    }
    return la_sum16(sum);
}

/* The factors of a block; where all coordinates fit, its x' as well, right but for untame tokens.
   Returns whether there are any. What stands where the next block would is fetched meanwhile. */
static LINATTN__NOINLINE int la_measure(const linattn__span *s, la_projection *w, const float *x,
                                        size_t x_token, size_t count)
{
    const linattn__params *p = s->params;
    const uintptr_t next = count > 1 ? count * x_token * sizeof(float) : 0;
    size_t t, i;
    int untame = 0;
    for (t = 0; t < count; t++, x += x_token) {
#if LA_BLOCK > 1
        float *const to = s->d <= LINATTN__FEATURES ? w->x + t * LA_ROW : NULL;
#else
        float *const to = NULL;
#endif
        float square = la_square(x, s->d, p->source_root, to);
        for (i = 0; LA_W > 1 && i < s->d; i += 16)
            LINATTN__FETCH((const float *)((uintptr_t)(x + i) + next));
        w->factor[t] = p->source_root;
        w->power[t] = 0.0f;
        if (!(square < 1e24f)) {
            w->factor[t] = linattn__tame(x, s->d, p->source_root, &w->power[t]);
            square = 0.0f;
            untame = 1;
        }
        w->lower[t] = p->lowered ? 0.5f * square : 0.0f;
    }
    return untame;
}
#endif

#if LA_WALK
/* The projections of tame tokens become those of the untame: saturating, so that none is inf. */
LINATTN__COLD static void la_untame(const linattn__span *s, const la_projection *w, const float *x,
                                    size_t x_token, size_t t, size_t columns, float *y)
{
    float square = 0.0f;
    size_t c;
    if (w->power[t] == 0.0f) return;
    if (s->params->lowered) square = la_square(x + t * x_token, s->d, w->factor[t], NULL);
    square = 0.5f * square;
    linattn__saturating_ldexp(&square, 2.0f * w->power[t]);
    for (c = 0; c < columns; c++) {
        linattn__saturating_ldexp(y + c, w->power[t]);
        y[c] = linattn__clamp(y[c] - square);
    }
}
#endif

/* What is so small that its products might be denormal counts as 0. */
LINATTN__INLINE float la_tiny(float x)
{
    if ((x < 1e-18f) & (x > -1e-18f)) x = 0.0f; /* one jump, as signs vary */
    return x;
}

#if LA_BLOCK > 1
#if LA_COLD
/* x' of coordinates [c0, c1). */
static LINATTN__NOINLINE void la_scale_rows(la_projection *w, const float *x, size_t x_token,
                                            size_t count, size_t c0, size_t c1)
{
    size_t t;
    for (t = 0; t < count; t++)
        la_square(x + t * x_token + c0, c1 - c0, w->factor[t], w->x + t * LA_ROW);
}
#endif

#if LA_WALK
/* The panels of features [f0, f1), coordinates [c0, c1), from the caller's rows; the second half of
   the hyperbolic form with the other sign. Behind the features 0: what lies there is multiplied. */
static void la_panels(const linattn__span *s, size_t f0, size_t f1, size_t c0, size_t c1)
{
    float *to = s->panels;
    size_t f, c, i;
    for (f = f0; f < f1; f += 16)
        for (c = c0; c < c1; c++, to += 16)
            for (i = f; i < f + 16; i++) {
                const size_t row = i < s->rows ? i : i - s->rows;
                float x = 0.0f;
                if (i < f1) x = la_tiny(s->shared[row * s->d + c]);
                if (i >= s->rows) x = 0.0f - x;
                to[i - f] = x;
            }
}

/* y[t][f - f0] = w_f.x' - lower of `count` tokens: x' times the projection by the tile that reads
   out S. */
LINATTN__INLINE void la_project_tokens(const linattn__span *s, la_projection *w, const float *x,
                                       size_t x_token, size_t count, int untame, size_t f0,
                                       size_t f1, float *y, size_t y_row)
{
    const float *panels = s->shared + (f0 - s->shared_begin) * s->d;
    linattn__span view = *s;
    la_tile a;
    size_t c;
    a.span = &view;
    a.k = a.q = w->x;
    a.by = w->lower;
    a.v = NULL;
    a.out = y;
    a.count = a.end = count;
    a.heads = 1;
    a.begin = 0;
    a.positive_zeros = a.keep = a.ahead = 0;
    a.lowers = 1;
    view.m = s->d;
    view.dv = view.column_end = f1 - f0;
    view.column_begin = 0;
    view.out_token = y_row;
    view.out_head = 0;
    for (c = 0; c < s->d; c += LINATTN__FEATURES) {
        const size_t c1 = s->d - c < LINATTN__FEATURES ? s->d : c + LINATTN__FEATURES;
        if (untame || s->d > LINATTN__FEATURES) LA_OF(s, scale_rows)(w, x, x_token, count, c, c1);
        a.first = c == 0;
        a.last = c1 == s->d;
        a.f0 = c;
        a.f1 = c1;
        view.s = (float *)(uintptr_t)panels;
        if (s->rows) {
            if (s->d > LINATTN__FEATURES) la_panels(s, f0, f1, c, c1);
            view.s = s->panels;
            view.m = a.f1 = c1 - c;
            a.f0 = 0;
        }
        LA_OF(s, read_tiles)(&a);
    }
}
#endif
#else
/* The same of one token, coordinate by coordinate, from panels or the caller's rows. */
LINATTN__INLINE void la_project_tokens(const linattn__span *s, la_projection *w, const float *x,
                                       size_t x_token, size_t count, int untame, size_t f0,
                                       size_t f1, float *y, size_t y_row)
{
    const float *const panel = s->shared + (f0 - s->shared_begin) * s->d;
    size_t c, f;
    (void)x_token;
    (void)count;
    (void)untame;
    (void)y_row;
    for (f = f0; f < f1; f++) y[f - f0] = 0.0f;
    for (c = 0; c < s->d; c++) {
        const float by = la_tiny(x[c] * w->factor[0]);
        for (f = f0; f < f1; f++) {
            float at;
            if (s->rows) {
                at = la_tiny(s->shared[f % s->rows * s->d + c]);
                if (f >= s->rows) at = 0.0f - at;
            } else {
                at = panel[(f - f0) / 16 * 16 * s->d + c * 16 + (f - f0) % 16];
            }
            y[f - f0] = la_fma(by, at, y[f - f0]);
        }
    }
    for (f = f0; f < f1; f++) y[f - f0] = y[f - f0] - w->lower[0];
}
#endif

#if LA_COLD && LA_BLOCK > 1
/* From y = w_f.x': y - lower, and -y - lower into `other`. */
static LINATTN__NOINLINE void la_both_signs(const float *lower, size_t count, size_t width,
                                            float *y, size_t y_row, float *other, size_t other_row)
{
    size_t t, f;
    for (t = 0; t < count; t++, y += y_row, other += other_row)
        for (f = 0; f < width; f += LA_W) {
            const la_vec x = la_load(y + f), less = la_set1(lower[t]);
            la_store(other + f, la_sub(la_sub(la_zero(), x), less));
            la_store(y + f, la_sub(x, less));
        }
}
#endif

#if LA_WALK
/* y[t][f - f0] = w_f.x' - |x'|^2/2, and unless it is NULL other[t][f - f0] the same for -w_f. */
static LINATTN__NOINLINE void la_project(const linattn__span *s, const float *x, size_t x_token,
                                         size_t count, size_t f0, size_t f1, float *y, size_t y_row,
                                         float *other, size_t other_row)
{
    la_projection w;
    float lower[LA_BLOCK];
    size_t t, n;
    for (; count > 0; count -= n, x += n * x_token, y += n * y_row) {
        int untame;
        n = count < LA_BLOCK ? count : LA_BLOCK;
        untame = LA_OF(s, measure)(s, &w, x, x_token, n);
        for (t = 0; other && t < n; t++) {
            lower[t] = w.lower[t];
            w.lower[t] = 0.0f;
        }
        la_project_tokens(s, &w, x, x_token, n, untame, f0, f1, y, y_row);
#if LA_BLOCK > 1
        if (other) LA_OF(s, both_signs)(lower, n, f1 - f0, y, y_row, other, other_row);
#else
        (void)lower;
#endif
        for (t = 0; untame && t < n; t++) {
            la_untame(s, &w, x, x_token, t, f1 - f0, y + t * y_row);
            if (other) la_untame(s, &w, x, x_token, t, f1 - f0, other + t * other_row);
        }
        if (other) other += n * other_row;
    }
}
#endif

#if LA_W > 1
/* Tokens whose monomials are made side by side: a load of what several stores have just written
   waits for them. */
#define LA_LISTS 8
#define LA_LIST_ROW (LINATTN__LOWER + 2 * LA_W)

typedef struct la_monomials {
    float list[LA_LISTS * LA_LIST_ROW]; /* token by token */
    float product[9][LA_LISTS];         /* of so many coordinates */
    float weight[LA_ROW];
} la_monomials;

/* The lists of degree 1 of `count` tokens. */
LINATTN__INLINE void la_coordinates(const linattn__recipe *r, la_monomials *w, const float *x,
                                    size_t x_token, size_t count, float root)
{
    size_t t, f;
    for (t = 0; t < count; t++)
        for (f = 0; f < r->d; f += LA_W) {
            const int lanes = la_lanes_left(r->d, f);
            const la_vec in = la_load_part(x + t * x_token + f, lanes);
            la_store_part(w->list + t * LA_LIST_ROW + 1 + f, la_mul(in, la_set1(root)), lanes);
        }
}

#ifdef LA_PICK
/* Few coordinates are picked from registers: `places` has what monomials are products of. */
#define LA_TABLE 32
#define LA_ONE (LA_TABLE - 1) /* where there is a 1, of as many as needs one */
#define LA_PLACE_ROW (LINATTN__LOWER + LA_W)

/* For the lists: the last coordinate first, and so many ones that all have `base` of them. */
LINATTN__INLINE void la_places(const linattn__recipe *r, float *places)
{
    const la_vec one = la_set1(linattn__from_bits(LA_ONE));
    size_t p, i, j, f;
    for (f = 0; f < r->base * LA_PLACE_ROW; f += LA_W) la_store(places + f, one);
    for (i = 0; i < r->d; i++) places[1 + i] = linattn__from_bits((uint32_t)i);
    for (p = 2; p <= r->base; p++) {
        float *to = places + r->list[p];
        for (i = 0; i < r->d; i++) {
            const size_t first = linattn__leading(r, p - 1, i), length = r->size[p - 1] - first;
            const float *const below = places + r->list[p - 1] + first;
            for (f = 0; f < length; f += LA_W) {
                for (j = 0; j + 1 < p; j++)
                    la_store(to + j * LA_PLACE_ROW + f, la_load(below + j * LA_PLACE_ROW + f));
                la_store(to + j * LA_PLACE_ROW + f, la_set1(places[1 + i]));
            }
            to += length;
        }
    }
}

/* For the features of a recipe: those of a list, and what its parts are multiplied by. */
LINATTN__INLINE void la_flatten(const linattn__recipe *r, size_t degree, const float *lists,
                                float *places)
{
    size_t i, j, f;
    for (j = 0; j < degree; j++) {
        const float *const from = lists + j * LA_PLACE_ROW;
        float *to = places + j * LA_ROW;
        for (i = 0; i < r->count; i++) {
            const linattn__segment *g = &r->segment[i];
            if (j < r->base) {
                for (f = 0; f < g->length; f += LA_W) la_store(to + f, la_load(from + g->from + f));
            } else {
                const size_t level = j - r->base;
                const size_t place = level < g->prefix ? g->index[level] : LA_ONE;
                const la_vec x = la_set1(linattn__from_bits((uint32_t)place));
                for (f = 0; f < g->length; f += LA_W) la_store(to + f, x);
            }
            to += g->length;
        }
        la_store(to, la_zero());
    }
}

/* Coordinates of a token, and a 1, to be picked from. */
LINATTN__INLINE void la_table(const float *x, size_t d, float root, la_vec *low, la_vec *high)
{
    *low = la_mul(la_load_part(x, la_lanes_left(d, 0)), la_set1(root));
    *high = la_set1(1.0f);
    if (d > LA_W) {
        const int lanes = la_lanes_left(d, LA_W);
        *high = la_mul(la_load_part(x + LA_W, lanes), la_set1(root));
        if (d < LA_TABLE) *high = la_first(*high, la_set1(1.0f), lanes);
    }
}

/* `count` monomials of T tokens side by side: products of `lower` coordinates, times those of
   `higher`. */
LINATTN__INLINE void la_picked(size_t d, size_t lower, size_t higher, float root,
                               const float *places, const float *weights, const float *x,
                               size_t x_token, size_t count, float *y, size_t y_row, const size_t T)
{
    la_vec low[4], high[4], a[4], b[4];
    size_t f, i, j;
    LINATTN__UNROLL for (i = 0; i < T; i++) la_table(x + i * x_token, d, root, low + i, high + i);
    for (f = 0; f < count; f += LA_W) {
        const float *place = places + f;
        LINATTN__UNROLL for (i = 0; i < T; i++) a[i] = la_pick(low[i], high[i], place);
        for (j = 1; j < lower; j++) {
            place += LA_ROW;
            LINATTN__UNROLL for (i = 0; i < T; i++) a[i] =
                la_mul(a[i], la_pick(low[i], high[i], place));
        }
        if (higher > 0) {
            place += LA_ROW;
            LINATTN__UNROLL for (i = 0; i < T; i++) b[i] = la_pick(low[i], high[i], place);
            for (j = 1; j < higher; j++) {
                place += LA_ROW;
                LINATTN__UNROLL for (i = 0; i < T; i++) b[i] =
                    la_mul(b[i], la_pick(low[i], high[i], place));
            }
            LINATTN__UNROLL for (i = 0; i < T; i++) a[i] = la_mul(a[i], b[i]);
        }
        LINATTN__UNROLL for (i = 0; i < T; i++)
            la_store(y + i * y_row + f, la_mul(a[i], la_load(weights + f)));
    }
}

/* la_multiply by `places`. */
LINATTN__INLINE void la_pick_all(const linattn__span *s, size_t lower, size_t higher,
                                 const float *places, const float *x, size_t x_token, size_t count,
                                 size_t f0, size_t f1, float *y, size_t y_row)
{
    const float *const weights = s->shared + (f0 - s->shared_begin);
    const float root = s->params->source_root;
    const size_t d = s->d, m = f1 - f0;
    float weight[LA_ROW];
    size_t f, t;
    for (f = 0; f < m; f += LA_W)
        la_store(weight + f, la_load_part(weights + f, la_lanes_left(m, f)));
    for (t = 0; count - t >= 4; t += 4)
        la_picked(d, lower, higher, root, places, weight, x + t * x_token, x_token, m,
                  y + t * y_row, y_row, 4);
    for (; t < count; t++)
        la_picked(d, lower, higher, root, places, weight, x + t * x_token, x_token, m,
                  y + t * y_row, y_row, 1);
}

/* la_multiply of few coordinates. */
static LINATTN__NOINLINE void la_multiply_few(const linattn__span *s, const float *x,
                                              size_t x_token, size_t count, size_t f0, size_t f1,
                                              float *y, size_t y_row)
{
    float lists[7 * LA_PLACE_ROW], places[8 * LA_ROW];
    linattn__recipe r;
    linattn__plan(&r, s->d, s->params->degree, f0, f1);
    la_places(&r, lists);
    la_flatten(&r, s->params->degree, lists, places);
    la_pick_all(s, r.base, s->params->degree - r.base, places, x, x_token, count, f0, f1, y, y_row);
}

/* Which coordinates the monomials of degree 2 among features [f0, f1) are products of: rows of ever
   fewer, each one times those from it on. Of the others: the first one, twice. */
LINATTN__INLINE void la_pair_places(size_t d, size_t f0, size_t f1, float *places)
{
    float upwards[LA_TABLE + LA_W];
    size_t i, f;
    for (i = 0; i < LA_TABLE + LA_W; i++) upwards[i] = linattn__from_bits((uint32_t)i);
    for (f = f0; f < 1 + d; f += LA_W) {
        la_store(places + (f - f0), la_zero());
        la_store(places + LA_ROW + (f - f0), la_zero());
    }
    for (i = 0, f = 1 + d; i < d && f < f1; f += d - i, i++) {
        size_t j = f < f0 ? i + (f0 - f) : i;
        for (; j < d && f + (j - i) < f1; j += LA_W) {
            float *const to = places + (f + (j - i) - f0);
            la_store(to, la_set1(upwards[i]));
            la_store(to + LA_ROW, la_load(upwards + j));
        }
    }
    la_store(places + (f1 - f0), la_zero());
    la_store(places + LA_ROW + (f1 - f0), la_zero());
}

/* And of degree 2. */
LINATTN__INLINE void la_multiply_pairs(const linattn__span *s, const float *x, size_t x_token,
                                       size_t count, size_t f0, size_t f1, float *y, size_t y_row)
{
    const float *const weights = s->shared + (f0 - s->shared_begin);
    const size_t few = f1 < 1 + s->d ? f1 : 1 + s->d;
    float places[2 * LA_ROW];
    size_t f, t;
    la_pair_places(s->d, f0, f1, places);
    la_pick_all(s, 2, 0, places, x, x_token, count, f0, f1, y, y_row);
    for (t = 0; f0 < few && t < count; t++) { /* 1, and the coordinates */
        float *const to = y + t * y_row;
        if (f0 == 0) to[0] = weights[0];
        for (f = f0 > 0 ? f0 : 1; f < few; f += LA_W) {
            const int lanes = la_lanes_left(few, f);
            const la_vec root = la_set1(s->params->source_root);
            const la_vec in = la_mul(la_load_part(x + t * x_token + (f - 1), lanes), root);
            la_store_part(to + (f - f0), la_mul(in, la_load_part(weights + (f - f0), lanes)),
                          lanes);
        }
    }
}

#else
/* The lists of degrees from 2 to base: each from the one below, of the last only what is taken. Of
   `count` tokens, there or not, an even number. Writes up to LA_W - 1 floats more. */
static void la_lists(const linattn__recipe *r, float *list, size_t count)
{
    size_t p, i, t, f;
    for (p = 2; p <= r->base; p++) {
        size_t to = r->list[p], length;
        for (i = 0; i < r->d; i++, to += length) {
            const size_t first = linattn__leading(r, p - 1, i);
            length = r->size[p - 1] - first;
            if (p == r->base && (to >= r->end || to + length <= r->begin)) continue;
            for (f = 0; f < length; f += LA_W) {
                const float *const from = list + r->list[p - 1] + first + f;
                float *const own = list + to + f;
                for (t = 0; t < count * LA_LIST_ROW; t += 2 * LA_LIST_ROW) {
                    const la_vec by = la_set1(list[t + 1 + i]);
                    const la_vec next = la_set1(list[t + LA_LIST_ROW + 1 + i]);
                    la_store(own + t, la_mul(la_load(from + t), by));
                    la_store(own + t + LA_LIST_ROW, la_mul(la_load(from + t + LA_LIST_ROW), next));
                }
            }
        }
    }
}
#endif

/* y = part of a list times a product, with weights, for `count` tokens. */
LINATTN__INLINE void la_segment(const float *part, size_t row, size_t length, const float *by,
                                size_t by_row, const float *weights, size_t count, float *y,
                                size_t y_row)
{
    size_t t, f;
    for (f = 0; f < length; f += LA_W) {
        const la_vec weight = la_load(weights + f);
        const float *from = part + f, *times = by;
        float *to = y + f;
        for (t = 0; t < count; t++, from += row, times += by_row, to += y_row)
            la_store(to, la_mul(la_mul(la_load(from), la_set1(*times)), weight));
    }
}

/* The segments of `count` tokens. `raw`: the list is the operand itself, and taken from it a vector
   at a time. */
static void la_segments(const linattn__recipe *r, la_monomials *w, const float *x, size_t x_token,
                        size_t count, float root, int raw, float *y, size_t y_row)
{
    const float *weights = w->weight;
    size_t i, t, f, level;
    for (i = 0; i < r->count; i++) {
        const linattn__segment *g = &r->segment[i];
        const float *by = w->product[g->prefix];
        size_t by_row = 1;
        if (g->prefix == 1 && !raw) {
            by = w->list + 1 + g->index[0];
            by_row = LA_LIST_ROW;
        } else {
            for (level = i ? g->unchanged : 0; level < g->prefix; level++)
                for (t = 0; t < count; t++)
                    w->product[level + 1][t] =
                        w->product[level][t] * (x[t * x_token + g->index[level]] * root);
        }
        for (f = 0; raw && g->from && f < g->length; f += LA_W) {
            const int lanes = la_lanes_left(g->length, f);
            for (t = 0; t < count; t++)
                la_store(
                    w->list + t * LA_LIST_ROW + 16,
                    la_mul(la_load_part(x + t * x_token + g->from - 1 + f, lanes), la_set1(root)));
            la_segment(w->list + 16, LA_LIST_ROW, LA_W, by, 1, weights + f, count, y + f, y_row);
        }
        if (!raw || !g->from)
            la_segment(w->list + g->from, LA_LIST_ROW, g->length, by, by_row, weights, count, y,
                       y_row);
        weights += g->length;
        y += g->length;
    }
}

/* So few tokens of so few coordinates that a plan of degree 2 takes longer than what it is for. */
#define LA_SQUARES_TOKENS 2
#define LA_SQUARES 64

/* Features [f0, f1) that a token and its map share out: where the next one goes, and its weight. */
typedef struct la_squared {
    const float *weights;
    float *y;
    size_t left; /* features that are still to be made */
    size_t skip; /* that are not, before them */
} la_squared;

/* `length` features more, those of `part` times `by`. */
LINATTN__INLINE void la_square_run(la_squared *to, const float *part, float by, size_t length)
{
    const la_vec times = la_set1(by);
    size_t f;
    if (to->skip >= length) {
        to->skip -= length;
        return;
    }
    part += to->skip;
    length -= to->skip;
    to->skip = 0;
    if (length > to->left) length = to->left;
    for (f = 0; f < length; f += LA_W) {
        const size_t left = to->left - f;
        const la_vec weight =
            left >= LA_W ? la_load(to->weights + f) : la_load_part(to->weights + f, (int)left);
        la_store(to->y + f, la_mul(la_mul(la_load(part + f), times), weight));
    }
    to->weights += length;
    to->y += length;
    to->left -= length;
}

/* la_multiply of degree 2, for a token: 1, the coordinates, and each times those from it on. */
LINATTN__INLINE void la_squares(const linattn__span *s, const float *x, size_t f0, size_t f1,
                                float *y)
{
    const la_vec root = la_set1(s->params->source_root);
    const size_t d = s->d;
    float list[1 + LA_SQUARES + 2 * LA_W];
    la_squared to;
    size_t i;
    to.weights = s->shared + (f0 - s->shared_begin);
    to.y = y;
    to.left = f1 - f0;
    to.skip = f0;
    list[0] = 1.0f;
    for (i = 0; i < d; i += LA_W)
        la_store(list + 1 + i, la_mul(la_load_part(x + i, la_lanes_left(d, i)), root));
    la_store(list + 1 + d, la_zero());
    la_square_run(&to, list, 1.0f, 1 + d); /* 1 by itself, and the coordinates by 1 */
    for (i = 1; i <= d && to.left > 0; i++) la_square_run(&to, list + i, list[i], d + 1 - i);
}

/* y[t][f - f0] = the monomials of `count` tokens with their weights. Writes up to LA_W - 1 floats
   more. */
LINATTN__SMALL static LINATTN__NOINLINE void la_multiply(const linattn__span *s, const float *x,
                                                         size_t x_token, size_t count, size_t f0,
                                                         size_t f1, float *y, size_t y_row)
{
    const float *weights = s->shared + (f0 - s->shared_begin);
    const float root = s->params->source_root;
    linattn__recipe r;
    la_monomials w;
    size_t t, n, f, end, rows;
    int raw;
#ifdef LA_PICK
    if (s->params->degree == 2 && s->d <= LA_TABLE) {
        la_multiply_pairs(s, x, x_token, count, f0, f1, y, y_row);
        return;
    }
    if (s->d < LA_TABLE) {
        la_multiply_few(s, x, x_token, count, f0, f1, y, y_row);
        return;
    }
#endif
    if (s->params->degree == 2 && s->d <= LA_SQUARES && count <= LA_SQUARES_TOKENS) {
        for (t = 0; t < count; t++) la_squares(s, x + t * x_token, f0, f1, y + t * y_row);
        return;
    }
    linattn__plan(&r, s->d, s->params->degree, f0, f1);
    raw = r.d + 1 > LINATTN__LOWER; /* base is 1 then, and the list is the operand */
    end = raw ? 1 : r.list[r.base] + r.size[r.base];
    /* what is not there is multiplied, too, by twos or fours, and slow if it were denormal */
    rows = count < LA_LISTS ? (count + 3) / 4 * 4 : LA_LISTS;
    for (t = 0; t < rows; t++) {
        linattn__zeros(w.list + t * LA_LIST_ROW, end + LA_W);
        w.product[0][t] = w.list[t * LA_LIST_ROW] = 1.0f;
    }
    for (f = 0; f < f1 - f0; f += LA_W)
        la_store(w.weight + f, la_load_part(weights + f, la_lanes_left(f1 - f0, f)));
    la_store(w.weight + f, la_zero());
    for (t = 0; t < count; t += n, x += n * x_token, y += n * y_row) {
        n = count - t < LA_LISTS ? count - t : LA_LISTS;
        if (!raw) la_coordinates(&r, &w, x, x_token, n, root);
#ifndef LA_PICK
        if (!raw) la_lists(&r, w.list, (n + 1) / 2 * 2);
#endif
        la_segments(&r, &w, x, x_token, n, root, raw, y, y_row);
    }
}
#else
/* The same one by one, with no plan and no lists, by the same products: of the coordinates that
   would be in a list from the last one up, of those before them from the first one down. */
LINATTN__SMALL static LINATTN__NOINLINE void la_multiply(const linattn__span *s, const float *x,
                                                         size_t x_token, size_t count, size_t f0,
                                                         size_t f1, float *y, size_t y_row)
{
    const float root = s->params->source_root;
    const size_t base = linattn__base(s->d, s->params->degree);
    linattn__segment at;
    size_t rank = f0, f, t, i, degree = linattn__degree_of(s->d, &rank);
    at.prefix = (uint8_t)degree;
    (void)linattn__descend(s->d, degree, rank, &at, &i);
    for (f = f0; f < f1; f++) {
        for (t = 0; t < count; t++) {
            const float *from = x + t * x_token;
            float low = 1.0f, high = 1.0f;
            for (i = at.prefix; i > 0 && at.prefix - i < base; i--)
                low = low * (from[at.index[i - 1]] * root);
            for (degree = 0; degree < i; degree++) high = high * (from[at.index[degree]] * root);
            y[t * y_row + (f - f0)] = low * high * s->shared[f - s->shared_begin];
        }
        if (!linattn__advance(s->d, &at) && f + 1 < f1) {
            at.prefix++;
            for (i = 0; i < at.prefix; i++) at.index[i] = 0;
        }
    }
}
#endif
#endif

#if LINATTN__HAS_EXACT
/* ---- Exact attention ------------------------------------------------------------------------- */

#ifdef LINATTN__SPARED /* up to the few queries nothing is faster for these two */
#pragma GCC push_options
#pragma GCC optimize("no-gcse", "no-tree-pta")
#endif

/* Lanes are queries: NQ vectors of them meet LINATTN__EXACT_KEYS keys at a time. Scores, weights
   and outputs stay transposed, [key or column][query], so that every sum is a chain of fma in
   its own lane, and the running maximum and the denominator are vectors. */

#define LA_CHAINS LINATTN__CHAINS
#define LA_EXACT_LANES (LA_EXACT_VECS * LA_W)
#define LA_EXACT_ROW(w) (LA_EXACT_LANES > 1 ? (w)->row : 1)
#define LA_EXACT_TILES /* of scalar code one, for its stack */                                     \
    (LA_W == 1                                     ? 1                                             \
     : LINATTN__EXACT_QUERIES / LA_EXACT_LANES < 8 ? LINATTN__EXACT_QUERIES / LA_EXACT_LANES       \
                                                   : 8)

/* LA_W elements of a row from i on, zeros from `part` on. */
LINATTN__INLINE la_vec la_elements(const float *row, size_t i, int part, int element)
{
    const float *const at = linattn__beyond(row, i, element);
    float tail[LA_W];
    if (!LINATTN__IS_HALF(element)) return la_load_part(at, part);
    if (part == LA_W) return la_wide(at, element == LINATTN_BF16);
    la_widen(at, element, 0, 1, (size_t)part, tail);
    return la_load_part(tail, part);
}

/* Rows of the keys listed from j on; those beyond the last one are it again, and never used. */
LINATTN__INLINE void la_key_rows(const linattn__exact *x, const linattn__exact_scratch *w, size_t j,
                                 size_t end, const float **k)
{
    const int packed = LINATTN__IS_HALF(x->k_element);
    size_t r;
    LINATTN__UNROLL for (r = 0; r < LA_SCORE_ROWS; r++)
    {
        const size_t at = j + r < end ? j + r : end - 1;
        k[r] = packed ? w->k + at * x->d : x->k + w->index[at] * x->k_token;
    }
}

/* A score q.k is the sum of eight chains: component f goes by fma to chain f mod 8, and the chains
   are added in their order. So what one query reads of a key lies side by side.

   Component f of LA_SCORE_ROWS keys goes to its chain, and the next ones to the next chains, of
   which there are LA_SCORE_CHAINS; or chains begin. */
LINATTN__INLINE void la_score_step(const float *q, size_t row, const float *const *k, size_t f,
                                   la_vec *acc, const int begin, const size_t NQ)
{
    enum { ROWS = LA_SCORE_ROWS, CHAINS = LA_SCORE_CHAINS };
    la_vec y[LA_EXACT_VECS];
    size_t r, u, i;
    LINATTN__UNROLL for (i = 0; i < CHAINS; i++)
    {
        LINATTN__UNROLL for (u = 0; u < NQ; u++) y[u] = la_load(q + i * row + u * LA_W);
        LINATTN__UNROLL for (r = 0; r < ROWS; r++)
        {
            const la_vec kr = la_set1(k[r][f + i]);
            la_vec *const at = acc + (i * ROWS + r) * NQ;
            LINATTN__UNROLL for (u = 0; u < NQ; u++) at[u] =
                begin ? la_mul(kr, y[u]) : la_fma_hot(kr, y[u], at[u]);
        }
    }
}

/* LA_SCORE_CHAINS of them from c on, of LA_SCORE_ROWS keys, are added to their sums, or begin
   them. A chain that begins by a product, not by its sum with 0, may be -0: no weight differs. */
LINATTN__INLINE void la_score_chains(const linattn__exact *x, const float *q, size_t row,
                                     const float *const *k, size_t c, la_vec *sum, const int begin,
                                     const size_t NQ)
{
    enum { ROWS = LA_SCORE_ROWS, CHAINS = LA_SCORE_CHAINS };
    const size_t stop = x->d < CHAINS ? 0 : x->d - CHAINS + 1, step = LA_CHAINS * row;
    la_vec acc[CHAINS * ROWS * LA_EXACT_VECS];
    size_t f = c, r, u, i;
    q += c * row;
    if (f < stop) {
        la_score_step(q, row, k, f, acc, 1, NQ);
        for (f += LA_CHAINS, q += step; f < stop; f += LA_CHAINS, q += step)
            la_score_step(q, row, k, f, acc, 0, NQ);
    } else
        LINATTN__UNROLL for (r = 0; r < CHAINS * ROWS * NQ; r++) acc[r] = la_zero();
    LINATTN__UNROLL for (i = 0; i + 1 < CHAINS; i++) if (f + i < x->d) /* some once more */
        LINATTN__UNROLL for (r = 0; r < ROWS; r++)
    {
        const la_vec kr = la_set1(k[r][f + i]);
        LINATTN__UNROLL for (u = 0; u < NQ; u++) acc[(i * ROWS + r) * NQ + u] =
            la_fma_hot(kr, la_load(q + i * row + u * LA_W), acc[(i * ROWS + r) * NQ + u]);
    }
    LINATTN__UNROLL for (r = 0; r < ROWS * NQ; r++)
    {
        if (!begin) acc[r] = la_add(sum[r], acc[r]);
        sum[r] = acc[r];
        LINATTN__UNROLL for (i = 1; i < CHAINS; i++) sum[r] =
            la_add(sum[r], acc[i * ROWS * NQ + r]);
    }
}

/* P[j][lane] = q.k_j. */
LINATTN__INLINE void la_scores_of(const linattn__exact *x, const linattn__exact_scratch *w,
                                  const linattn__exact_part *part, const size_t NQ)
{
    enum { ROWS = LA_SCORE_ROWS, CHAINS = LA_SCORE_CHAINS };
#ifdef __clang__ /* which would put off all sums, and keep the chains in memory: 1.3 of the time */
    enum { UNROLLED = 0 };
#else
    enum { UNROLLED = LA_EXACT_VECS > 1 };
#endif
    const size_t row = NQ > 1 ? NQ * LA_W : LA_EXACT_ROW(w), first = (size_t)part->vector * LA_W;
    const float *const q = w->q + first, *k[ROWS];
    size_t j, c, r, u;
    for (j = part->begin; j < part->end; j += ROWS) {
        la_vec sum[ROWS * LA_EXACT_VECS];
        float *const p = w->p + j * row + first;
        /* few reads can be under way at a time: what comes next is fetched by pieces meanwhile */
        if ((j - part->begin) % LA_UPDATE_ROWS == 0) {
            if (w->ahead) linattn__exact_fetch(x, w, w->index[j] + w->ahead);
            if (LA_W > 1 && w->coming) linattn__exact_coming(x, w, j / LA_UPDATE_ROWS);
        }
        la_key_rows(x, w, j, part->end, k);
        la_score_chains(x, q, row, k, 0, sum, 1, NQ);
        /* those beyond d are 0 */
        if (UNROLLED && NQ == LA_EXACT_VECS)
            LINATTN__UNROLL for (c = CHAINS; c < LA_CHAINS; c += CHAINS)
                la_score_chains(x, q, row, k, c, sum, 0, NQ);
        else
            for (c = CHAINS; c < LA_CHAINS && c < x->d; c += CHAINS)
                la_score_chains(x, q, row, k, c, sum, 0, NQ);
        LINATTN__UNROLL for (r = 0; r < ROWS; r++) LINATTN__UNROLL for (u = 0; u < NQ; u++)
            la_store(p + r * row + u * LA_W, la_mul(sum[r * NQ + u], la_set1(x->post)));
    }
}

static LINATTN__NOINLINE void la_scores(const linattn__exact *x, const linattn__exact_scratch *w,
                                        const linattn__exact_part *part)
{
    if (LA_EXACT_VECS > 2 && part->vectors > 2)
        la_scores_of(x, w, part, LA_EXACT_VECS);
    else if (LA_EXACT_VECS > 1 && part->vectors > 1)
        la_scores_of(x, w, part, 2);
    else
        la_scores_of(x, w, part, 1);
}

/* O[c][lane] += weights times values. Lanes that do not see all keys are not worth tiles of many
   shapes. */
static LINATTN__NOINLINE void la_weighed(const linattn__outer *a, size_t vectors, int masked)
{
    if (masked)
        la_outer(a, 0, 1, 1);
    else if (LA_EXACT_VECS > LA_UPDATE_VECS && vectors > LA_UPDATE_VECS)
        la_outer(a, 0, 0, LA_EXACT_VECS);
    else if (LA_UPDATE_VECS > 1 && vectors > 1)
        la_outer_wide(a, 0);
    else
        la_outer_single(a, 0);
}

/* e^(before - top), of a vector each: what sums shrink by where a maximum rises. Before the first
   keys that is far below what e^x is 0 for, and would overflow: see la_exp_end. */
static LINATTN__NOINLINE void la_exact_shrink(const float *before, const float *top, float *by)
{
    const la_vec x = la_sub(la_load(before), la_load(top));
    la_store(by, la_exp_negative(la_max(la_set1(-1024.0f), x)));
}

/* tanh(x), at most 1.5 ULP off over all floats. */
LINATTN__INLINE la_vec la_tanh(la_vec x)
{
    const la_vec y = la_flush(x, la_set1(9.3132257e-10f)); /* 2^-30: the square is no denormal */
    const la_vec z = la_mul(y, y), minus = la_sub(la_zero(), x), size = la_max(minus, x);
    const la_vec one = la_set1(1.0f), least = la_set1(0.6f);
    float from[LA_W], to[LA_W];
    la_vec e, low = la_set1(-0.00589515816f);
    low = la_fma(low, z, la_set1(0.0207959712f));
    low = la_fma(low, z, la_set1(-0.0537838303f));
    low = la_fma(low, z, la_set1(0.133319244f));
    low = la_fma(low, z, la_set1(-0.333332986f));
    low = la_fma(x, la_mul(z, low), x);
    if (!la_any(la_gt(size, least))) return low;
    la_store(from, la_sub(la_zero(), size));
    la_store(to, size);
    la_exact_shrink(from, to, to);
    e = la_load(to);
    e = la_sub(one, la_div(la_add(e, e), la_add(one, e)));
    low = la_select(la_gt(x, least), e, low);
    return la_select(la_gt(minus, least), la_sub(la_zero(), e), low);
}

/* Soft cap and slopes change `rows` scores of `row` elements, which end with a vector. The element
   i of row r is that of a query and a key place[i] + ahead[r] places apart, and its slope is
   slope[i], or, without `slopes`, slope[0]. */
static LINATTN__NOINLINE void la_adjust(const linattn__exact *x, float *score, size_t rows,
                                        size_t row, const float *place, const float *ahead,
                                        const float *slope, int slopes)
{
    const int sloped = x->slopes != NULL, capped = x->cap > 0.0f;
    const la_vec cap = la_set1(x->cap);
    size_t r, i;
    for (i = 0; i < row; i += LA_W) {
        la_vec from = cap, by = cap;
        if (sloped) {
            from = la_load(place + i);
            by = slopes ? la_load(slope + i) : la_set1(*slope);
        }
        for (r = 0; r < rows; r++) {
            float *const at = score + r * row + i;
            la_vec y = la_load(at);
            if (capped) y = la_mul(cap, la_tanh(la_div(y, cap)));
            if (sloped) {
                const la_vec distance = la_add(from, la_set1(ahead[r]));
                y = la_fnma(by, la_max(la_sub(la_zero(), distance), distance), y);
                y = la_clamp(y);
            }
            la_store(at, y);
        }
    }
}

/* a where a query of this limit sees a key of this order that leaves late, elsewhere b. */
LINATTN__INLINE la_vec la_seen(la_vec limit, la_vec order, la_vec late, la_vec a, la_vec b)
{
    a = la_select(la_gt(limit, order), a, b);
    return la_select(la_gt(limit, late), b, a);
}

/* Scores become weights e^(score - maximum); where a maximum rises, what was gathered shrinks. Keys
   that not all lanes see: their weight is -1 there. */
LINATTN__INLINE void la_weigh_vectors(const linattn__exact *x, linattn__exact_scratch *w,
                                      const linattn__exact_part *part, size_t u, const int masked,
                                      const size_t NU)
{
    const size_t row = LA_EXACT_ROW(w), begin = part->begin, end = part->end;
    const float *const orders = w->order, *const lates = w->late;
    float *const p = w->p + u * LA_W;
    const la_vec limit = la_load(w->limit + u * LA_W);
    la_vec top[LA_EXACT_VECS], sum[LA_EXACT_VECS];
    size_t i, j, c;
    LINATTN__UNROLL for (i = 0; i < NU; i++)
    {
        top[i] = la_load(w->maximum + (u + i) * LA_W);
        sum[i] = la_load(w->den + (u + i) * LA_W);
    }
    for (j = begin; j < end; j++) {
        LINATTN__UNROLL for (i = 0; i < NU; i++)
        {
            la_vec y = la_load(p + j * row + i * LA_W);
            if (masked)
                y = la_seen(limit, la_set1(orders[j]), la_set1(lates[j]), y,
                            la_load(w->maximum + (u + i) * LA_W));
            top[i] = la_max(top[i], y);
        }
    }
    LINATTN__UNROLL for (i = 0; i < NU; i++)
    {
        float *const before = w->maximum + (u + i) * LA_W;
        if (la_any(la_gt(top[i], la_load(before)))) {
            float tops[LA_W], by[LA_W];
            la_vec shrink;
            la_store(tops, top[i]);
            la_exact_shrink(before, tops, by);
            shrink = la_load(by);
            sum[i] = la_mul(sum[i], shrink);
            for (c = 0; c < x->dv; c++) {
                float *const o = w->o + c * row + (u + i) * LA_W;
                la_store(o, la_mul(la_load(o), shrink));
            }
            la_store(before, top[i]);
        }
    }
    for (j = begin; j < end; j++) {
        LINATTN__UNROLL for (i = 0; i < NU; i++)
        {
            float *const at = p + j * row + i * LA_W;
            la_vec y = la_exp_negative(la_sub(la_load(at), top[i]));
            if (masked)
                y = la_seen(limit, la_set1(orders[j]), la_set1(lates[j]), y, la_set1(-1.0f));
            la_store(at, y);
            sum[i] = la_add(sum[i], masked ? la_max(la_zero(), y) : y);
        }
    }
    LINATTN__UNROLL for (i = 0; i < NU; i++) la_store(w->den + (u + i) * LA_W, sum[i]);
}

/* All vectors of a part. */
static LINATTN__NOINLINE void la_weigh(const linattn__exact *x, linattn__exact_scratch *w,
                                       const linattn__exact_part *part)
{
    const size_t behind = (size_t)part->vector + part->vectors;
    const int masked = part->masked;
    size_t u = part->vector;
    if (LA_W >= 8 && !masked) /* by twos a fiftieth less than by ones */
        for (; u + 1 < behind; u += 2) la_weigh_vectors(x, w, part, u, 0, 2);
    for (; u < behind; u++) {
        if (LA_W == 1)
            la_weigh_vectors(x, w, part, u, masked, 1);
        else if (masked)
            la_weigh_vectors(x, w, part, u, 1, 1);
        else
            la_weigh_vectors(x, w, part, u, 0, 1);
    }
}

/* Fetches what comes next of a row. */
LINATTN__INLINE void la_fetch_nexts(const float *row, int element, size_t dim,
                                    const linattn__nexts *next)
{
    const size_t line = LINATTN__IS_HALF(element) ? 32 : 16;
    size_t i, f;
    for (i = 0; i < next->count; i++)
        for (f = 0; f < dim; f += line)
            LINATTN__FETCH(linattn__beyond(row, next->at[i] + f, element));
}

/* Rows of the `count` keys listed as dense floats. Fetches what comes next of them, if not NULL. */
static LINATTN__NOINLINE void la_pack(const linattn__exact_scratch *w, size_t count,
                                      const float *from, size_t token, int element, size_t dim,
                                      const linattn__nexts *next, float *to)
{
    const size_t *const index = w->index;
    const int together = index[count - 1] - index[0] == count - 1;
    const size_t nexts = next ? next->count : 0;
    size_t f, j;
    if (LINATTN__IS_HALF(element) && together) {
        la_widen(linattn__beyond(from, index[0] * token, element), element, token, count, dim, to);
        if (!nexts) return;
    }
    for (j = 0; j < count; j++, to += dim) {
        const float *const at = linattn__beyond(from, index[j] * token, element);
        if (nexts) la_fetch_nexts(at, element, dim, next);
        if (LINATTN__IS_HALF(element)) {
            if (!together) la_widen(at, element, 0, 1, dim, to);
            continue;
        }
        for (f = 0; f < dim; f += LA_W) {
            const int part = la_lanes_left(dim, f);
            la_store_part(to + f, la_load_part(at + f, part), part);
        }
    }
}

/* Where the values of a block lie: in place, or packed where masked tokens lie between, or they are
   of 16 bits. */
static const float *la_values(const linattn__exact *x, const linattn__exact_scratch *w,
                              size_t count, size_t *stride)
{
    *stride = x->v_token;
    if (!LINATTN__IS_HALF(x->v_element) && w->index[count - 1] - w->index[0] == count - 1)
        return x->v + w->index[0] * x->v_token;
    *stride = x->dv;
    la_pack(w, count, x->v, x->v_token, x->v_element, x->dv, &w->next_v, w->v);
    return w->v;
}

/* Q[component][lane] = the tile's queries times pre. */
LINATTN__SMALL static LINATTN__NOINLINE void la_exact_queries(const linattn__exact *x,
                                                              const linattn__exact_scratch *w)
{
    const la_vec pre = la_set1(x->pre);
    const float *q[LA_W];
    size_t i, f, l;
    for (i = 0; i < LA_EXACT_ROW(w); i += LA_W) {
        for (l = 0; l < LA_W; l++)
            q[l] = linattn__exact_query(x, w->i0 + (i + l < w->lanes ? i + l : w->lanes - 1));
        for (f = 0; f < x->d; f += LA_W) {
            const int part = la_lanes_left(x->d, f);
            float rows[LA_W * LA_W];
            la_vec a[LA_W];
            for (l = 0; l < LA_W; l++)
                la_store(rows + l * LA_W, la_mul(la_elements(q[l], f, part, x->q_element), pre));
            la_transpose(rows, LA_W, a);
            for (l = 0; l < (size_t)part; l++) la_store(w->q + (f + l) * LA_EXACT_ROW(w) + i, a[l]);
        }
    }
}

/* to[c] = from[c] times *by. */
static LINATTN__NOINLINE void la_scaled_row(const float *from, const float *by, float *to,
                                            size_t count)
{
    const la_vec y = la_set1(*by);
    size_t c;
    for (c = 0; c < count; c += LA_W) {
        const int part = la_lanes_left(count, c);
        la_store_part(to + c, la_mul(la_load_part(from + c, part), y), part);
    }
}

#ifdef LINATTN__SPARED
#pragma GCC pop_options
#endif

#if LA_COLD && LA_W > 1
/* Scores of a few queries, for AVX-512, too. Vectors hold the chains of a key: LA_CHAIN_VECS of
   LA_CHAIN_LANES, in AVX-512 alone half of one. */
#define LA_CHAIN_LANES (LA_W < LA_CHAINS ? LA_W : LA_CHAINS)
#define LA_CHAIN_VECS (LA_CHAINS / LA_CHAIN_LANES)
#define LA_FEW_KEYS 16   /* at a time: while sums of some wait for one another, others go on */
#define LA_FEW_QUERIES 4 /* in a tile */

/* So many of a query, or of sums. */
LINATTN__INLINE la_vec la_chain_load(const float *p)
{
    return LA_W > LA_CHAINS ? la_load_part(p, LA_CHAINS) : la_load(p);
}

LINATTN__INLINE void la_chain_store(float *p, la_vec a)
{
    if (LA_W > LA_CHAINS)
        la_store_part(p, a, LA_CHAINS);
    else
        la_store(p, a);
}

/* Of the first `left` components of a key from f on, or zeros. */
LINATTN__INLINE la_vec la_chain_key(const float *row, size_t f, size_t left, const int element)
{
    const int part = left < LA_CHAIN_LANES ? (int)left : LA_CHAIN_LANES;
#if LA_W > 8
    if (LINATTN__IS_HALF(element) && left >= LA_CHAINS)
        return la_wide_eight(linattn__beyond(row, f, element), element == LINATTN_BF16);
#endif
    return la_elements(row, f, part, element);
}

/* Components [f, f + left), at most eight, of NQ queries and NK keys: all go on in their chains. */
LINATTN__INLINE void la_few_chains(const float *q, size_t q_row, const float *const *k, size_t f,
                                   size_t left, la_vec *acc, const int element, const size_t NQ,
                                   const size_t NK)
{
    size_t r, l, i;
    LINATTN__UNROLL for (i = 0; i < LA_CHAIN_VECS; i++)
    {
        const size_t on = i * LA_CHAIN_LANES, at = f + on, rest = left > on ? left - on : 0;
        la_vec y[LA_FEW_QUERIES];
        LINATTN__UNROLL for (l = 0; l < NQ; l++) y[l] = la_chain_load(q + l * q_row + at);
        LINATTN__UNROLL for (r = 0; r < NK; r++)
        {
            const la_vec key = la_chain_key(k[r], at, rest, element);
            LINATTN__UNROLL for (l = 0; l < NQ; l++)
            {
                la_vec *const sum = acc + (r * NQ + l) * LA_CHAIN_VECS + i;
                *sum = la_fma(key, y[l], *sum);
            }
        }
    }
}

/* sums[query][key][chain] of NQ queries and LA_FEW_KEYS keys; eight at a time stay in registers. */
LINATTN__INLINE void la_few_tile(const linattn__exact *x, const float *q, const float *const *k,
                                 float *sums, const int element, const size_t NQ)
{
    enum { MOST = 8 };
    const size_t row = linattn__few_row(x->d), d = x->d, NK = MOST / NQ;
    size_t j, f, r, l, i;
    for (j = 0; j < LA_FEW_KEYS; j += NK) {
        la_vec acc[MOST * LA_CHAIN_VECS];
        LINATTN__UNROLL for (i = 0; i < MOST * LA_CHAIN_VECS; i++) acc[i] = la_zero();
        for (f = 0; f + LA_CHAINS <= d; f += LA_CHAINS)
            la_few_chains(q, row, k + j, f, LA_CHAINS, acc, element, NQ, NK);
        if (f < d) la_few_chains(q, row, k + j, f, d - f, acc, element, NQ, NK);
        LINATTN__UNROLL for (r = 0; r < NK; r++) LINATTN__UNROLL for (l = 0; l < NQ; l++)
        {
            float *const to = sums + (l * LA_FEW_KEYS + j + r) * LA_CHAINS;
            LINATTN__UNROLL for (i = 0; i < LA_CHAIN_VECS; i++)
                la_chain_store(to + i * LA_CHAIN_LANES, acc[(r * NQ + l) * LA_CHAIN_VECS + i]);
        }
    }
}

LINATTN__WARM static LINATTN__NOINLINE void la_few_one(const linattn__exact *x, const float *q,
                                                       const float *const *k, float *sums)
{
    const int element = LINATTN__TYPE(x->k_element);
    if (!LINATTN__IS_HALF(element))
        la_few_tile(x, q, k, sums, LINATTN_F32, 1);
    else if (element == LINATTN_BF16)
        la_few_tile(x, q, k, sums, LINATTN__TYPE(LINATTN_BF16), 1);
    else
        la_few_tile(x, q, k, sums, LINATTN__TYPE(LINATTN_F16), 1);
}

/* Of two, or of four. */
LINATTN__WARM static LINATTN__NOINLINE void la_few_several(const linattn__exact *x, const float *q,
                                                           const float *const *k, float *sums,
                                                           size_t queries)
{
    const int element = LINATTN__TYPE(x->k_element), half = LINATTN__IS_HALF(element);
    if (queries == 2 && half)
        la_few_tile(x, q, k, sums, element, 2);
    else if (queries == 2)
        la_few_tile(x, q, k, sums, LINATTN_F32, 2);
    else if (half)
        la_few_tile(x, q, k, sums, element, LA_FEW_QUERIES);
    else
        la_few_tile(x, q, k, sums, LINATTN_F32, LA_FEW_QUERIES);
}

/* The scores of a query: the chains of each key are added. */
LINATTN__INLINE void la_few_added(const linattn__exact *x, const float *sums, float *score)
{
    const la_vec post = la_set1(x->post);
    la_vec a[LA_CHAINS];
    size_t r, i;
    for (r = 0; r < LA_FEW_KEYS; r += LA_W) {
        LINATTN__UNROLL for (i = 0; i < LA_CHAINS; i += 4)
            la_four_columns(sums + r * LA_CHAINS + i, LA_CHAINS, a + i);
        LINATTN__UNROLL for (i = 1; i < LA_CHAINS; i++) a[0] = la_add(a[0], a[i]);
        la_store(score + r, la_mul(a[0], post));
    }
}

/* Where the keys listed lie; the last one again behind them. */
LINATTN__INLINE void la_few_places(const linattn__exact *x, const size_t *index, size_t count,
                                   const float **k)
{
    const size_t size = LINATTN__IS_HALF(x->k_element) ? 2 : sizeof(float), last = LA_FEW_KEYS - 1;
    const size_t token = x->k_token * size;
    uintptr_t at = (uintptr_t)x->k + index[0] * token;
    size_t r;
    if (count > last && index[last] - index[0] == last) {
        LINATTN__UNROLL for (r = 0; r < LA_FEW_KEYS; r++, at += token) k[r] = (const float *)at;
        return;
    }
    for (r = 0; r < LA_FEW_KEYS; r++) {
        k[r] = (const float *)at;
        if (r + 1 < count) at += (index[r + 1] - index[r]) * token;
    }
}

/* As la_scores. What fills the last vector is the last key's again. */
LINATTN__WARM static LINATTN__NOINLINE void
la_few_scores(const linattn__exact *x, const linattn__exact_scratch *w, size_t count)
{
    float sums[LA_FEW_QUERIES * LA_FEW_KEYS * LA_CHAINS];
    const float *k[LA_FEW_KEYS];
    size_t j, l, i, tile;
    for (j = 0; j < count; j += LA_FEW_KEYS) {
        la_few_places(x, w->index + j, count - j, k);
        for (i = 0; w->next_k.count && i < LA_FEW_KEYS; i++)
            la_fetch_nexts(k[i], x->k_element, x->d, &w->next_k);
        for (l = 0; l < w->lanes; l += tile) {
            const float *const q = w->q + l * linattn__few_row(x->d);
            tile = w->lanes - l > 2 ? LA_FEW_QUERIES : w->lanes - l;
            if (tile > 1)
                la_few_several(x, q, k, sums, tile);
            else
                la_few_one(x, q, k, sums);
            for (i = 0; i < tile; i++)
                la_few_added(x, sums + i * LA_FEW_KEYS * LA_CHAINS,
                             w->p + (l + i) * LINATTN__EXACT_KEYS + j);
        }
    }
}
#endif

/* Where only `few` queries are left, in a decode step say, lanes are better used for components in
   the scores, and for columns in the outputs: Q is [query][component], P [query][key], O
   [query][column]. The sums are those of the tiles. Q and P have as many rows as tiles of queries
   take, and rows of Q are eights long. */
#define LA_FEW (LA_W / 2)
#define LA_FEW_TOGETHER (LA_W == 16 ? 4 : 2) /* in a tile of outputs */
#define LA_FEW_VECS (LA_W < 8 ? 2 : 4)       /* of columns, for so many queries */
#define LA_FEW_REST 2                        /* of what is left of a row */
/* and for one: rows come in one go, as hardware expects, and into sums that are enough for no FMA
   unit to wait */
#define LA_FEW_ALONE (LA_W >= 8 || LINATTN__ISA == LINATTN__ISA_NEON ? 8 : 4)

#if LA_W > 1
static void la_few_query(const linattn__exact *x, size_t i, float *to)
{
    const float *q = linattn__exact_query(x, i);
    size_t f;
    if (LINATTN__IS_HALF(x->q_element)) {
        la_widen(q, x->q_element, 0, 1, x->d, to);
        q = to;
    }
    la_scaled_row(q, &x->pre, to, x->d);
    for (f = x->d; f < linattn__few_row(x->d); f++) to[f] = 0.0f;
}
#endif

/* The outputs of LA_W lanes: o[c * row + l] times scale[l] goes to out[l][c]. */
LINATTN__SMALL static void la_exact_outputs(const linattn__exact *x, const float *o,
                                            const float *scale, float *const *out, size_t row)
{
    const la_vec by = la_load(scale);
    size_t c, l;
    for (c = 0; c < x->dv; c += LA_W) {
        const int part = la_lanes_left(x->dv, c);
        float rows[LA_W * LA_W];
        la_vec a[LA_W];
        for (l = 0; l < LA_W; l++)
            la_store(rows + l * LA_W,
                     l < (size_t)part ? la_mul(la_load(o + (c + l) * row), by) : la_zero());
        la_transpose(rows, LA_W, a);
        for (l = 0; l < LA_W; l++)
            if (out[l]) la_store_part(out[l] + c, a[l], part);
    }
}

LINATTN__SMALL static LINATTN__NOINLINE void la_exact_end(const linattn__exact *x,
                                                          const linattn__exact_scratch *w, int few)
{
    const size_t row = LA_EXACT_ROW(w);
    float scale[LA_EXACT_LANES], *out[LA_EXACT_LANES];
    float *at = x->out + w->i0 / x->group * x->out_token;
    size_t l, g = w->i0 % x->group;
    for (l = 0; l < row; l++) {
        out[l] = NULL;
        scale[l] = linattn__inverse(w->den[l]);
        if (l >= w->lanes) continue;
        out[l] = at + g * x->out_head;
        if (few) la_scaled_row(w->o + l * x->dv, scale + l, out[l], x->dv);
        if (++g < x->group) continue;
        g = 0;
        at += x->out_token;
    }
    for (l = 0; !few && l < row; l += LA_W) la_exact_outputs(x, w->o + l, scale + l, out + l, row);
}

#if LA_W > 1
/* Values that lie `token` elements apart. */
typedef struct la_few_rows {
    const float *at;
    size_t token;
    const linattn__nexts *next; /* are fetched, if not NULL */
    int element;
} la_few_rows;

/* As la_weigh, of query l, but for the sum. */
static LINATTN__NOINLINE void la_few_weigh(const linattn__exact *x, linattn__exact_scratch *w,
                                           size_t count, size_t l, int masked)
{
    const la_vec before = la_set1(w->maximum[l]), limit = la_set1(w->limit[l]);
    float *const p = w->p + l * LINATTN__EXACT_KEYS, *const o = w->o + l * x->dv;
    float tops[LA_W], by[LA_W];
    la_vec most[LA_PANEL_VECS], top = before;
    size_t j;
    for (j = 0; j < count; j += LA_W) {
        la_vec y = la_load(p + j);
        if (masked) y = la_seen(limit, la_load(w->order + j), la_load(w->late + j), y, before);
        top = la_max(top, la_first(y, before, la_lanes_left(count, j)));
    }
    for (j = 0; j < LA_PANEL_VECS; j++) most[j] = top;
    top = la_set1(la_max16(most));
    if (la_any(la_gt(top, before))) {
        la_store(tops, before);
        la_store(by, top);
        w->maximum[l] = by[0];
        if (w->den[l] > 0.0f) { /* else all is 0, or NaN */
            la_exact_shrink(tops, by, by);
            w->den[l] *= by[0];
            la_scaled_row(o, by, o, x->dv);
        }
    }
    for (j = 0; j < count; j += LA_W) {
        la_vec y = la_exp_negative(la_sub(la_load(p + j), top));
        if (masked)
            y = la_seen(limit, la_load(w->order + j), la_load(w->late + j), y, la_set1(-1.0f));
        la_store(p + j, y);
    }
}

/* Columns from c0 on of the outputs of NQ queries from l on, NR vectors, of which one or two may be
   partial: o[c] += sum over the keys of weight v[c]; the first ones sum the weights, too. Values
   may be of 16 bits if `half`. One query leaves out keys that it does not see: their weights are
   negative. */
LINATTN__INLINE void la_few_values(const linattn__exact *x, linattn__exact_scratch *w, size_t count,
                                   const la_few_rows *v, size_t l, size_t c0, const int half,
                                   const size_t NQ, const size_t NR)
{
    const int element = half ? LINATTN__TYPE(v->element) : (int)LINATTN_F32;
    const float *const p = w->p + l * LINATTN__EXACT_KEYS;
    float *const o = w->o + l * x->dv + c0;
    la_vec acc[LA_FEW_TOGETHER * 4];
    float sum[LA_FEW_TOGETHER];
    const size_t nexts = v->next ? v->next->count : 0, left = x->dv - c0;
    int first = LA_W, last = LA_W;
    size_t j, r, i, n, at = c0;
    if (NR <= 2) {
        first = la_lanes_left(left, 0);
        last = NR > 1 && left > LA_W ? la_lanes_left(left, LA_W) : 0;
    }
    LINATTN__UNROLL for (i = 0; i < NQ; i++)
    {
        sum[i] = w->den[l + i];
        LINATTN__UNROLL for (r = 0; r < NR; r++) acc[i * NR + r] =
            la_load_part(o + i * x->dv + r * LA_W, r ? last : first);
    }
    for (j = 0; j < count; j++, at += v->token) {
        la_vec y[LA_FEW_ALONE];
        LINATTN__ROLLED for (n = 0; n < nexts; n++)
        {
            const float *const line = linattn__beyond(v->at, at + v->next->at[n], element);
            LINATTN__UNROLL for (r = 0; r < NR; r += 16 / LA_W) LINATTN__FETCH(line + r * LA_W);
        }
        if (NQ == 1 && p[j] < 0.0f) continue;
        LINATTN__UNROLL for (r = 0; r < NR; r++) y[r] =
            la_elements(v->at, at + r * LA_W, r ? last : first, element);
        LINATTN__UNROLL for (i = 0; i < NQ; i++)
        {
            const float weight = p[i * LINATTN__EXACT_KEYS + j];
            if (NQ == 1 || c0 == 0) sum[i] += weight; /* else nobody asks */
            LINATTN__UNROLL for (r = 0; r < NR; r++) acc[i * NR + r] =
                la_fma(y[r], la_set1(weight), acc[i * NR + r]);
        }
    }
    LINATTN__UNROLL for (i = 0; i < NQ; i++)
    {
        if (c0 == 0) w->den[l + i] = sum[i];
        LINATTN__UNROLL for (r = 0; r < NR; r++) if (!r || last)
            la_store_part(o + i * x->dv + r * LA_W, acc[i * NR + r], r ? last : first);
    }
}

/* As many of one query as go well together, from c on; returns how many vectors. */
LINATTN__INLINE size_t la_few_alone(const linattn__exact *x, linattn__exact_scratch *w,
                                    size_t count, const la_few_rows *v, size_t l, size_t c,
                                    const int half)
{
    const size_t left = x->dv - c;
#if LA_FEW_ALONE > 4
    if (left >= LA_FEW_ALONE * LA_W) {
        la_few_values(x, w, count, v, l, c, half, 1, LA_FEW_ALONE);
        return LA_FEW_ALONE;
    }
#endif
    if (left >= 4 * LA_W) {
        la_few_values(x, w, count, v, l, c, half, 1, 4);
        return 4;
    }
    if (!half && left <= LA_W)
        la_few_values(x, w, count, v, l, c, 0, 1, 1);
    else
        la_few_values(x, w, count, v, l, c, half, 1, LA_FEW_REST);
    return LA_FEW_REST;
}

static LINATTN__NOINLINE void la_few_outputs(const linattn__exact *x, linattn__exact_scratch *w,
                                             size_t count, const la_few_rows *v, size_t l, int many)
{
    size_t c, vectors;
    for (c = 0; c < x->dv; c += vectors * LA_W) {
        vectors = x->dv - c >= LA_FEW_VECS * LA_W ? LA_FEW_VECS : LA_FEW_REST;
        if (many && vectors > 2)
            la_few_values(x, w, count, v, l, c, 0, LA_FEW_TOGETHER, LA_FEW_VECS);
        else if (many)
            la_few_values(x, w, count, v, l, c, 0, LA_FEW_TOGETHER, LA_FEW_REST);
        else if (LINATTN__IS_HALF(v->element))
            vectors = la_few_alone(x, w, count, v, l, c, 1);
        else
            vectors = la_few_alone(x, w, count, v, l, c, 0);
    }
}

/* As la_exact_keys. */
static void la_few_keys(const linattn__exact *x, linattn__exact_scratch *w, size_t count)
{
    const size_t more = LA_FEW_TOGETHER > 2 && w->lanes % LA_FEW_TOGETHER == 3;
    const size_t rows = w->lanes + more, *const index = w->index;
    float ahead[LINATTN__EXACT_KEYS];
    linattn__exact_seen seen;
    la_few_rows v;
    size_t l;
    int masked;
    la_few_scores(x, w, count);
    if (linattn__exact_adjusts(x, w, count, ahead))
        for (l = 0; l < w->lanes; l++)
            la_adjust(x, w->p + l * LINATTN__EXACT_KEYS, 1, count, ahead, w->limit + l,
                      w->slope + l, 0);
    masked = linattn__exact_edges(x, w, count, &seen);
    v.element = x->v_element;
    v.token = x->v_token;
    v.next = &w->next_v;
    v.at = linattn__beyond(x->v, index[0] * x->v_token, x->v_element);
    if (rows > 1 || index[count - 1] - index[0] != count - 1) {
        v.at = la_values(x, w, count, &v.token);
        v.element = LINATTN_F32;
        if (v.at == w->v) v.next = NULL;
    }
    for (l = 0; l < rows; l++) la_few_weigh(x, w, count, l, masked);
    for (l = 0; l < rows; v.next = NULL) {
        const int many = !masked && rows - l >= LA_FEW_TOGETHER;
        la_few_outputs(x, w, count, &v, l, many);
        l += many ? LA_FEW_TOGETHER : 1;
    }
}

/* The queries of one tile, that are few. Heads that lie side by side go through the keys together,
   so that a page is met once, and what is fetched is the next head's. */
static void la_few_block(const linattn__exact *x, size_t i0, size_t lanes)
{
    const size_t row = linattn__few_row(x->d), rows = lanes > 1 ? LA_FEW : 1, heads = x->heads;
    linattn__exact_scratch all[LINATTN__EXACT_HEADS];
    linattn__exact of[LINATTN__EXACT_HEADS];
    size_t head, l, count, left;
    for (head = 0; head < heads; head++) {
        linattn__exact_scratch *const w = all + head;
        linattn__exact_of(x, head, of + head);
        w->i0 = i0;
        w->lanes = lanes;
        linattn__few_layout(of + head, w, LA_FEW, head);
        linattn__exact_begin(of + head, w, rows);
        for (l = 0; l < rows; l++)
            la_few_query(of + head, i0 + (l < lanes ? l : lanes - 1), w->q + l * row);
        linattn__exact_range(x, w, w);
    }
    do {
        for (head = left = 0; head < heads; head++) {
            linattn__exact_scratch *const w = all + head;
            if (w->at >= w->end) continue;
            w->at = linattn__exact_gather(of + head, w, w->at, &count);
            left |= w->end - w->at;
            linattn__few_next(x, w, head);
            if (count) la_few_keys(of + head, w, count);
        }
    } while (left);
    for (head = 0; head < heads; head++) la_exact_end(of + head, all + head, 1);
}
#endif

/* One tile and one block of keys, whose values are a->a. */
static void la_exact_keys(const linattn__exact *x, linattn__exact_scratch *w, size_t count,
                          linattn__outer *a, size_t vectors)
{
    linattn__exact_part part[2 * LA_EXACT_VECS + 1], hull[LA_EXACT_VECS], *at;
    const linattn__exact_part *end = part + 1;
    const float *const values = a->a;
    float ahead[LINATTN__EXACT_KEYS];
    linattn__exact_seen seen;
    size_t u = 1;
    part->masked = linattn__exact_edges(x, w, count, &seen) != 0;
    part->begin = part->vector = 0;
    part->end = (uint16_t)count;
    part->vectors = (uint8_t)vectors;
    *hull = *part;
    if (part->masked) {
        linattn__exact_parts(w, &seen, LA_W, vectors, part, hull);
        end += 2 * vectors;
        u = vectors;
    }
    for (at = part; at < end; at++) la_scores(x, w, at);
    if (linattn__exact_adjusts(x, w, count, ahead))
        la_adjust(x, w->p + seen.begin * LA_EXACT_ROW(w), seen.end - seen.begin, LA_EXACT_ROW(w),
                  w->limit, ahead + seen.begin, w->slope, 1);
    while (u-- > 0) la_weigh(x, w, hull + u);
    for (at = part; at < end; at++) {
        a->a = values + at->begin * a->a_row;
        a->b = w->p + at->begin * LA_EXACT_ROW(w) + at->vector * LA_W;
        a->c = w->o + at->vector * LA_W;
        a->count = (size_t)(at->end - at->begin);
        if (at->begin < at->end) la_weighed(a, at->vectors, at->masked);
    }
    a->a = values;
}

/* The queries of some tiles, of so many vectors each. Queries are counted over tokens and the heads
   of the group together, so that few tokens still fill vectors. */
static void la_exact_block(const linattn__exact *x, linattn__exact_scratch *w, size_t tiles,
                           size_t vectors)
{
    const size_t row = vectors * LA_W;
    const size_t queries = tiles * w->lanes, left = x->end - w->i0 - queries;
    size_t i, j = 0, end, count, ahead, coming = left < queries ? left : queries;
    linattn__outer a;
    if ((x->end - x->begin) * (x->d + x->dv) < LINATTN__EXACT_NEAR) coming = 0;
    for (i = 0; i < tiles; i++) {
        linattn__exact_begin(x, w + i, row);
        w[i].tile = i;
        w[i].tiles = tiles;
        w[i].share = i * LA_UPDATE_ROWS / tiles;
        w[i].share_end = (i + 1) * LA_UPDATE_ROWS / tiles;
        la_exact_queries(x, w + i);
        /* what no query of a vector sees is capped beside what some do, and is to be a number */
        if (x->cap > 0.0f) linattn__zeros(w[i].p, LINATTN__EXACT_KEYS * row);
    }
    linattn__exact_range(x, w, w + tiles - 1);
    end = w->end;
    a.c_row = a.b_row = row;
    a.c_vec = LA_W;
    a.fetches = 0;
    a.rows = x->dv;
    while (j < end) {
        j = linattn__exact_gather(x, w, j, &count);
        if (count == 0) continue;
        ahead = end - j < LINATTN__EXACT_KEYS ? 0 : LINATTN__EXACT_KEYS;
        if ((end - w->low) * (x->d + x->dv) < LINATTN__EXACT_NEAR) ahead = 0;
        if (LINATTN__IS_HALF(x->k_element))
            la_pack(w, count, x->k, x->k_token, x->k_element, x->d, NULL, w->k);
        a.a = la_values(x, w, count, &a.a_row);
        for (i = 0; i < tiles; i++) {
            w[i].ahead = ahead;
            w[i].coming = j < end ? 0 : coming;
            w[i].groups = (count + LA_UPDATE_ROWS - 1) / LA_UPDATE_ROWS;
            la_exact_keys(x, w + i, count, &a, vectors);
        }
    }
    for (i = 0; i < tiles; i++) la_exact_end(x, w + i, 0);
}

/* How many queries the next tile has, of those that are left. */
LINATTN__INLINE size_t la_exact_lanes(size_t left)
{
    /* two tiles of two vectors are better than one of three and one of one */
    if (LA_EXACT_VECS == 3 && left > 3 * LA_W && left <= 4 * LA_W) return 2 * LA_W;
    return left < LA_EXACT_LANES ? left : LA_EXACT_LANES;
}

LINATTN__SMALL static LINATTN__NOINLINE void la_exact_head(const linattn__exact *x)
{
    linattn__exact_scratch w[LA_EXACT_TILES];
    size_t i, tiles;
    for (i = x->begin; i < x->end; i += tiles * w->lanes) {
        linattn__exact_layout(x, w, LA_EXACT_LANES, 0);
        w->i0 = i;
        w->lanes = la_exact_lanes(x->end - i);
        tiles = 1;
#if LA_W > 1
        if (w->lanes <= LA_FEW) {
            la_few_block(x, i, w->lanes);
            continue;
        }
#endif
        while (tiles < LA_EXACT_TILES && x->end - i >= (tiles + 1) * LA_EXACT_LANES) {
            linattn__exact_layout(x, w + tiles, LA_EXACT_LANES, tiles);
            w[tiles].i0 = i + tiles * LA_EXACT_LANES;
            w[tiles++].lanes = LA_EXACT_LANES;
        }
        la_exact_block(x, w, tiles, (w->lanes + LA_W - 1) / LA_W);
    }
}

static void la_softmax(const linattn__exact *x)
{
    linattn__exact y;
    size_t head;
    if (LA_FEW > 0 && x->end - x->begin <= LA_FEW) {
        la_exact_head(x);
        return;
    }
    for (head = 0; head < x->heads; head++) {
        linattn__exact_of(x, head, &y);
        la_exact_head(&y);
    }
}
#endif

#if LINATTN__HAS_NYSTROM
/* ---- Nystroem -------------------------------------------------------------------------------- */

#if LA_W > 1 && defined(__GNUC__) && defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("align-jumps=16") /* here it is a fiftieth of the time */
#endif

#define LA_MEAN_VECS (LA_DW < 4 ? 8 : 32 / LA_DW) /* of doubles, summed side by side */

#if LA_COLD
/* Components [f, f + n) of token t, made floats; NULL of a masked token. */
static LINATTN__NOINLINE const float *la_mean_row(const linattn__means *x, size_t t, size_t f,
                                                  size_t n, float *wide)
{
    const float *const row = linattn__beyond(x->x, t * x->token, x->element);
    if (x->keys && linattn__masked_row(row, x->d, x->element)) return NULL;
    if (!LINATTN__IS_HALF(x->element)) return row + f;
    la_widen(linattn__beyond(row, f, x->element), x->element, 0, 1, n, wide);
    return wide;
}

/* Sums of NR vectors of components from f over the tokens [t, end), in double; the number of tokens
   in them is the same for all f. */
LINATTN__INLINE size_t la_mean_vectors(const linattn__means *x, size_t t, size_t end, size_t f,
                                       float *mean, const size_t NR)
{
    const int floats = !LINATTN__IS_HALF(x->element);
    la_dvec sum[LA_MEAN_VECS];
    double part[LA_MEAN_VECS * LA_DW];
    size_t count = 0, i;
    LINATTN__UNROLL for (i = 0; i < NR; i++) sum[i] = la_dset1(0.0);
    for (; t < end; t++) {
        float wide[LA_MEAN_VECS * LA_DW];
        const float *row;
        for (i = 0; t + 16 < x->n && i < NR * LA_DW; i += 16) /* rows of heads may take turns */
            LINATTN__FETCH(linattn__beyond(x->x, (t + 16) * x->token + f + i, x->element));
        if (floats && (!x->keys || !(x->x[t * x->token] < -LINATTN__FLT_MAX)))
            row = x->x + t * x->token + f; /* in place, as nearly all */
        else
            row = la_mean_row(x, t, f, NR * LA_DW, wide);
        if (!row) continue;
        count++;
        LINATTN__UNROLL for (i = 0; i < NR; i++) sum[i] =
            la_dadd(sum[i], la_dwiden(row + i * LA_DW));
    }
    if (count == 0) return 0;

    LINATTN__UNROLL for (i = 0; i < NR; i++)
        la_dstore(part + i * LA_DW, la_ddiv(sum[i], la_dset1((double)count)));
    for (i = 0; i < NR * LA_DW; i++) mean[f + i] = (float)part[i];
    return count;
}

/* The same for one component. */
static size_t la_mean_component(const linattn__means *x, size_t t, size_t end, size_t f,
                                float *mean)
{
    double sum = 0.0;
    size_t count = 0;
    for (; t < end; t++) {
        float wide;
        const float *const row = la_mean_row(x, t, f, 1, &wide);
        if (!row) continue;
        sum = sum + (double)*row;
        count++;
    }
    if (count) mean[f] = (float)(sum / (double)count);
    return count;
}

LINATTN__SMALL static size_t la_means(const linattn__means *x)
{
    float *mean = x->mean;
    size_t t, f, count = 0, segments = 0;
    for (t = 0; t < x->n; t += x->length) {
        const size_t end = x->n - t < x->length ? x->n : t + x->length;
        for (f = 0; x->d - f >= LA_MEAN_VECS * LA_DW; f += LA_MEAN_VECS * LA_DW)
            count = la_mean_vectors(x, t, end, f, mean, LA_MEAN_VECS);
        for (; x->d - f >= LA_DW; f += LA_DW) count = la_mean_vectors(x, t, end, f, mean, 1);
        for (; f < x->d; f++) count = la_mean_component(x, t, end, f, mean);
        if (count == 0) continue;
        mean += x->d;
        segments++;
    }
    return segments;
}
#endif

/* c[r][j] = sum over t < count of a[t][r] b[t][j], in order: MR rows, NR vectors. Rows of a and c
   and of b have strides of their own. */
LINATTN__INLINE void la_product_tile(const double *a, size_t a_row, const double *b, size_t b_row,
                                     double *c, size_t c_row, size_t count, const size_t MR,
                                     const size_t NR)
{
    la_dvec acc[LA_UPDATE_ROWS * LA_UPDATE_VECS];
    size_t t, r, j;
    LINATTN__UNROLL for (r = 0; r < MR * NR; r++) acc[r] = la_dset1(0.0);
    for (t = 0; t < count; t++, a += a_row, b += b_row) {
        la_dvec y[LA_UPDATE_VECS];
        LINATTN__UNROLL for (j = 0; j < NR; j++) y[j] = la_dload(b + j * LA_DW);
        LINATTN__UNROLL for (r = 0; r < MR; r++)
        {
            const la_dvec ar = la_dset1(a[r]);
            LINATTN__UNROLL for (j = 0; j < NR; j++) acc[r * NR + j] =
                la_dfma(ar, y[j], acc[r * NR + j]);
        }
    }
    LINATTN__UNROLL for (r = 0; r < MR; r++) LINATTN__UNROLL for (j = 0; j < NR; j++)
        la_dstore(c + r * c_row + j * LA_DW, la_dflush(acc[r * NR + j]));
}

/* Rows [r0, r0 + MR) of c = a^T b, columns from j, which are a multiple of 16 in all. */
LINATTN__INLINE void la_product_rows(const double *a, size_t a_row, const double *b, size_t b_row,
                                     double *c, size_t j, size_t columns, size_t count, size_t r0,
                                     const size_t MR)
{
    const size_t wide = LA_UPDATE_VECS * LA_DW;
    for (c += r0 * b_row, a += r0; j % wide && j < columns; j += LA_DW)
        la_product_tile(a, a_row, b + j, b_row, c + j, b_row, count, MR, 1);
    for (; j < columns; j += wide)
        la_product_tile(a, a_row, b + j, b_row, c + j, b_row, count, MR, LA_UPDATE_VECS);
}

#if LA_COLD
/* What was computed right of the diagonal is also what lies below. By eight columns, whose lines a
   row's loads share; scalar code by all. */
static LINATTN__NOINLINE void la_mirror(double *c, size_t row, size_t rows)
{
    const size_t step = LA_W > 1 ? 8 : rows;
    size_t r, i, h;
    for (r = 0; r < rows; r += step) {
        for (i = r + 1; i < rows && i < r + step; i++)
            for (h = r; h < i; h++) c[i * row + h] = c[h * row + i];
        if (LA_W == 1) continue;
        for (; i < rows; i++)
            for (h = r; h < r + 8; h++) c[i * row + h] = c[h * row + i];
    }
}
#endif

/* c = a^T b, rows x columns, columns a multiple of 16; c has b's stride. symmetric: so is c, of
   which half is computed. */
static LINATTN__NOINLINE void la_product(const double *a, size_t a_row, const double *b,
                                         size_t b_row, double *c, size_t rows, size_t columns,
                                         size_t count, int symmetric)
{
    const size_t whole = rows / LA_UPDATE_ROWS * LA_UPDATE_ROWS;
    size_t r;
    for (r = 0; r < whole; r += LA_UPDATE_ROWS)
        la_product_rows(a, a_row, b, b_row, c, symmetric ? r / LA_DW * LA_DW : 0, columns, count, r,
                        LA_UPDATE_ROWS);
    for (; r < rows; r++)
        la_product_rows(a, a_row, b, b_row, c, symmetric ? r / LA_DW * LA_DW : 0, columns, count, r,
                        1);
    if (symmetric) la_mirror(c, b_row, rows);
}

#if LA_WALK
/* Dense rows to columns of doubles, each times scale, with zeros up to `wide`. */
LINATTN__SMALL static void la_columns(const float *x, size_t rows, size_t d, double scale,
                                      double *to, size_t wide, size_t row)
{
    size_t i, f;
    for (f = 0; f < d; f++, to += row) {
        for (i = 0; i < rows; i++) to[i] = (double)x[i * d + f] * scale;
        for (; i < wide; i++) to[i] = 0.0;
    }
}
#endif

#if LA_COLD
/* e^x for x <= 0, to 1e-14; about 1e-39 below -89. A NaN comes from floats: its low bits, which
   la_dscale shifts, are 0. */
LINATTN__INLINE la_dvec la_double_exp(la_dvec x)
{
    static const double c[] = {2.50521083854417188e-8,
                               2.75573192239858907e-7,
                               2.75573192239858907e-6,
                               2.48015873015873016e-5,
                               1.98412698412698413e-4,
                               1.38888888888888889e-3,
                               8.33333333333333333e-3,
                               4.16666666666666667e-2,
                               1.66666666666666667e-1,
                               0.5,
                               1.0,
                               1.0};
    const la_dvec magic = la_dset1(6755399441055744.0);
    const la_dvec y = la_dmax(la_dset1(-89.0), x);
    const la_dvec t = la_dfma(y, la_dset1(1.44269504088896341), magic);
    const la_dvec r = la_dfma(la_dsub(t, magic), la_dset1(-0.693147180559945309), y);
    la_dvec p = la_dset1(c[0]);
    size_t i;
    LINATTN__UNROLL for (i = 1; i < 12; i++) p = la_dfma(p, r, la_dset1(c[i]));
    return la_dscale(p, t);
}

/* The softmax over each column of the scores: a[j][i] of key landmark j and query landmark i.
   Columns beyond the rows become 0. */
LINATTN__SMALL static void la_softmax_columns(double *a, size_t wide, size_t row, size_t rows,
                                              size_t columns)
{
    size_t i, j;
    for (i = 0; i < rows; i += LA_DW) {
        la_dvec top = la_dload(a + i), sum = la_dset1(0.0);
        for (j = 1; j < columns; j++) top = la_dmax(top, la_dload(a + j * row + i));
        for (j = 0; j < columns; j++) {
            const la_dvec y = la_double_exp(la_dsub(la_dload(a + j * row + i), top));
            la_dstore(a + j * row + i, y);
            sum = la_dadd(sum, y);
        }
        for (j = 0; j < columns; j++)
            la_dstore(a + j * row + i, la_dflush(la_ddiv(la_dload(a + j * row + i), sum)));
    }
    for (j = 0; j < columns; j++)
        for (i = rows; i < wide; i++) a[j * row + i] = 0.0;
}

/* |A|_1 |A|_inf of an A without negative elements, given transposed with zeros beyond its rows.
   Sums along memory over 16 lanes, then in order. */
LINATTN__SMALL LINATTN__COLD static LINATTN__NOINLINE double la_norms(const double *a, size_t wide,
                                                                      size_t row, size_t columns)
{
    double one = 0.0, all = 0.0, lanes[16], sum;
    size_t i, j, l;
    for (j = 0; j < columns; j++) {
        for (l = 0; l < 16; l += LA_DW) {
            la_dvec part = la_dload(a + j * row + l);
            for (i = 16; i < wide; i += 16) part = la_dadd(part, la_dload(a + j * row + i + l));
            la_dstore(lanes + l, part);
        }
        for (l = 1, sum = lanes[0]; l < 16; l++) sum = sum + lanes[l];
        if (sum > one) one = sum;
    }
    for (i = 0; i < wide; i += LA_DW) {
        la_dvec part = la_dload(a + i);
        for (j = 1; j < columns; j++) part = la_dadd(part, la_dload(a + j * row + i));
        la_dstore(lanes, part);
        for (l = 0; l < LA_DW; l++)
            if (lanes[l] > all) all = lanes[l];
    }
    return one * all;
}

/* E = I - X / c in place of X. */
static LINATTN__NOINLINE void la_residual(double *x, size_t wide, size_t row, size_t rows, double c)
{
    const double by = -1.0 / c;
    size_t i, j;
    for (i = 0; i < rows; i++, x += row) {
        const double diagonal = linattn__double_fma(x[i], by, 1.0);
        for (j = 0; j < wide; j += LA_DW) la_dstore(x + j, la_dmul(la_dload(x + j), la_dset1(by)));
        x[i] = diagonal;
    }
}

/* p: E^2 becomes P = I + E + E^2 + E^3 / 4; e: E becomes (3 I + E) / 4. */
static LINATTN__NOINLINE void la_polynomials(double *e, double *p, const double *cube, size_t wide,
                                             size_t row, size_t rows)
{
    const la_dvec quarter = la_dset1(0.25);
    size_t i, j;
    for (i = 0; i < rows; i++, e += row, p += row, cube += row) {
        for (j = 0; j < wide; j += LA_DW) {
            const la_dvec x = la_dload(e + j);
            const la_dvec y = la_dadd(la_dload(p + j), x);
            la_dstore(p + j, la_dfma(quarter, la_dload(cube + j), y));
            la_dstore(e + j, la_dmul(quarter, x));
        }
        p[i] = p[i] + 1.0;
        e[i] = e[i] + 0.75;
    }
}
#endif

#if LA_WALK
/* c = a b for symmetric matrices that commute. */
static void la_symmetric(const linattn__inverse_scratch *w, size_t rows, const double *a,
                         const double *b, double *c)
{
    LA_OF(w, product)(a, w->row, b, w->row, c, rows, w->wide, rows, 1);
}

static double la_trace(const double *a, size_t row, size_t rows)
{
    double sum = 0.0;
    size_t i;
    for (i = 0; i < rows; i++) sum = sum + a[i * row + i];
    return sum;
}

/* G with A^+ = A^T G / c, from E = I - A A^T / c in e[0]. With Z = A^T G / c the paper's step is,
   for E = I - AZ: Z <- Z (I + E + E^2 + E^3 / 4), E <- E^3 (3 I + E) / 4. All of these are
   polynomials in A A^T: symmetric, so that half of each product is enough. Returns where G lies. */
static const double *la_iterate(const linattn__inverse_of *x, linattn__inverse_scratch *w)
{
    double *e = w->e[0], *square = w->e[1], *cube = w->e[2], *g = w->g[0], *next = w->g[1], *swap;
    size_t step;
    for (step = 0; step < x->steps; step++) {
        la_symmetric(w, x->rows, e, e, square);
        if (step > 0 && la_trace(square, w->row, x->rows) <= LINATTN__CONVERGED) break;
        la_symmetric(w, x->rows, square, e, cube);
        LA_OF(w, polynomials)(e, square, cube, w->wide, w->row, x->rows);
        if (step > 0) la_symmetric(w, x->rows, g, square, next);
        swap = g;
        g = step > 0 ? next : square;
        if (step > 0)
            next = swap;
        else
            square = swap;
        if (step + 1 == x->steps) break;
        la_symmetric(w, x->rows, cube, e, square);
        swap = e;
        e = square;
        square = swap;
    }
    w->e[0] = e;
    return g;
}

/* w = A^T (G bv) / c; limit keeps sums over w within floats. */
LINATTN__SMALL LINATTN__COLD static void la_inverse_end(const linattn__inverse_of *x,
                                                        const linattn__inverse_scratch *w,
                                                        const double *g, double c)
{
    const size_t dv = w->dv_row;
    const double limit = (double)LINATTN__FLT_MAX / (4.0 * (double)x->columns);
    size_t i, j;
    for (i = 0; i < x->rows; i++)
        for (j = 0; j < dv; j++) w->x[i * dv + j] = j < x->dv ? (double)x->bv[i * x->dv + j] : 0.0;
    LA_OF(w, product)(g, w->row, w->x, dv, w->y, x->rows, dv, x->rows, 0);
    for (i = 0; i < x->rows; i++)
        for (j = 0; j < x->columns; j++) w->e[0][i * w->row + j] = w->a[j * w->row + i];
    LA_OF(w, product)(w->e[0], w->row, w->y, dv, w->x, x->columns, dv, x->rows, 0);
    for (i = 0; i < x->columns; i++)
        for (j = 0; j < x->dv; j++) {
            double y = w->x[i * dv + j] / c;
            if (y > limit) y = limit;
            if (y < -limit) y = -limit;
            x->w[i * x->dv + j] = linattn__flush((float)y);
        }
}

LINATTN__SMALL static void la_inverse(const linattn__inverse_of *x)
{
    linattn__inverse_scratch w;
    double c;
    linattn__inverse_layout(x, &w);
    la_columns(x->q, x->rows, x->d, x->scale, w.q, w.wide, w.row);
    la_columns(x->k, x->columns, x->d, 1.0, w.k, w.wide, w.row);
    LA_OF(x, product)(w.k, w.row, w.q, w.row, w.a, x->columns, w.wide, x->d, 0);
    LA_OF(x, softmax_columns)(w.a, w.wide, w.row, x->rows, x->columns);
    c = LA_OF(x, norms)(w.a, w.wide, w.row, x->columns);
    LA_OF(x, product)(w.a, w.row, w.a, w.row, w.e[0], x->rows, w.wide, x->columns, 1);
    LA_OF(x, residual)(w.e[0], w.wide, w.row, x->rows, c);
    la_inverse_end(x, &w, la_iterate(x, &w), c);
}
#endif
#if LA_W > 1 && defined(__GNUC__) && defined(__x86_64__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#endif

#if LINATTN__HAS_MAPS
/* ---- The maps on arrays ---------------------------------------------------------------------- */

/* `unit`: sqrt(s) is 1. */
LINATTN__INLINE la_vec la_map_vector(la_vec x, const linattn__params *p, const int map,
                                     const int unit)
{
    la_vec n, y;
    if (LINATTN__IS_EXP(map) && unit) return la_exp_full(x);
    if (LINATTN__IS_EXP(map)) {
        y = la_split(x, p, &n);
        return la_ldexp(y, la_min(la_set1(129.0f), n));
    }
    y = la_mul(x, la_set1(p->root));
    if (!LINATTN__IS_ELU1(map)) return la_plain(y, p, map);
    /* as plain, but exact down to FLT_MIN */
    return la_by_sign(y, la_exp_full(y), la_add(y, la_set1(1.0f)));
}

/* Whole pairs of vectors. Returns where it stopped. */
LINATTN__INLINE size_t la_map_pairs(const float *x, float *y, size_t n,
                                    const linattn__params *params, const int map, const int unit)
{
    const linattn__params local = *params, *p = &local; /* which no store can change */
    size_t i = 0;
    for (; n - i >= 2 * LA_W; i += 2 * LA_W) {
        const la_vec a = la_load(x + i), b = la_load(x + i + LA_W);
        la_store(y + i, la_map_vector(a, p, map, unit));
        la_store(y + i + LA_W, la_map_vector(b, p, map, unit));
    }
    return i;
}

/* As in la_stage: the usual maps are constants, one copy does the rest. */
static void la_map(const float *x, float *y, size_t n, const linattn__params *p)
{
    const int unit = p->root == 1.0f;
    size_t i = 0;
#if LA_CONSTANTS
    if (LINATTN__IS_EXP(p->map) && unit)
        i = la_map_pairs(x, y, n, p, LINATTN_MAP_EXP, 1);
    else if (LINATTN__IS_ELU1(p->map))
        i = la_map_pairs(x, y, n, p, LINATTN_MAP_ELU1, 0);
    else if (!LINATTN__IS_EXP(p->map))
        i = la_map_pairs(x, y, n, p, LINATTN_MAP_RELU, 0);
#endif
    for (; i < n; i += LA_W) {
        const int lanes = la_lanes_left(n, i);
        const la_vec a = la_load_part(x + i, lanes);
        la_store_part(y + i, la_map_vector(a, p, p->map, unit), lanes);
    }
}

#if LINATTN__HAS_FEATURES
/* Features [row_begin, row_end) of projected or monomial maps, of all tokens. A projection that the
   caller holds in rows becomes panels: once, or where keys are long for every block. */
static void la_map_features(const linattn__span *s)
{
    const size_t f0 = s->row_begin, f1 = s->row_end, y_row = LA_W > 1 ? LA_ROW : s->out_token;
    const int exponential = LINATTN__IS_EXP(s->params->map);
    float scratch[LA_W > 1 ? LA_BLOCK * LA_ROW : 1]; /* for whole vectors */
    size_t t, f, i, count;
#if LA_BLOCK > 1
    float panels[LINATTN__PANELS];
    linattn__span own = *s;
    own.panels = panels;
    s = &own;
    if (s->rows && s->d <= LINATTN__FEATURES) la_panels(s, f0, f1, 0, s->d);
#endif
    for (t = 0; t < s->n; t += count) {
        const float *x = s->k + t * s->k_token;
        float *const out = s->out + t * s->out_token + f0, *const y = LA_W > 1 ? scratch : out;
        count = s->n - t < LA_BLOCK ? s->n - t : LA_BLOCK;
        if (s->params->source == LINATTN__MONOMIALS)
            la_multiply(s, x, s->k_token, count, f0, f1, y, y_row);
        else
            la_project(s, x, s->k_token, count, f0, f1, y, y_row, NULL, 0);
        for (i = 0; i < count; i++) {
            const int masked = exponential && linattn__masked(x + i * s->k_token, s->d);
            for (f = 0; f < f1 - f0; f += LA_W) {
                const int lanes = la_lanes_left(f1 - f0, f);
                la_vec phi = la_load_part(y + i * y_row + f, lanes);
                if (exponential) phi = la_mul(la_exp_full(phi), la_set1(s->params->rest_root));
                if (masked) phi = la_zero();
                la_store_part(out + i * s->out_token + f, phi, lanes);
            }
        }
    }
}
#endif

#if LINATTN__HAS_UNIT && LA_COLD
/* y = the unit map of one key, or of a query where s->lag is set. */
LINATTN__COLD static void la_map_unit(const linattn__span *s, const float *x, float *y)
{
    const float scale = s->lag ? s->params->rest : 1.0f;
    float root;
    size_t f;
    la_unit_root(x, s->d, &root);
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = la_lanes_left(s->m, f);
        const la_vec phi = la_mul(la_load_part(x + f, lanes), la_set1(root));
        la_store_part(y + f, la_mul(phi, la_set1(scale)), lanes);
    }
}
#endif

#if LINATTN__HAS_SOFTMAX && LA_COLD
/* y = softmax over the span's m features of one query. */
LINATTN__COLD static void la_map_softmax(const linattn__span *s, const float *x, float *y)
{
    float all, top;
    la_vec mass;
    size_t f;
    la_mass(s, x, &all, &top);
    mass = la_set1(all);
    for (f = 0; f < s->m; f += LA_W) {
        const int lanes = la_lanes_left(s->m, f);
        la_vec n, e = la_split(la_load_part(x + f, lanes), s->params, &n);
        e = la_scale(e, la_sub(n, la_set1(top)));
        e = la_select(la_eq(mass, la_zero()), la_zero(), la_div(e, mass));
        la_store_part(y + f, e, lanes);
    }
}
#endif
#endif

/* Nothing of the vocabulary outlives the inclusion. */
#undef LA_NAME
#undef la_add
#undef la_add_kept
#undef la_add_key
#undef la_adjust
#undef la_afresh
#undef la_alike
#undef la_all_finite
#undef la_always_apart
#undef la_any
#undef la_append
#undef la_band
#undef la_band_apart
#undef la_band_begin
#undef la_band_block
#undef la_band_count
#undef la_band_end
#undef la_band_keep
#undef la_band_mask
#undef la_band_query
#undef la_band_run
#undef la_band_settle
#undef la_band_shift
#undef la_band_still
#undef la_band_tokens
#undef la_between
#undef la_beyond
#undef la_bits
#undef la_block
#undef la_block_chunk
#undef la_block_run
#undef la_both_signs
#undef la_by_sign
#undef la_cancel
#undef la_cancel_one
#undef la_cancelled_factor
#undef la_capped
#undef la_causal
#undef la_causal_columns
#undef la_causal_run
#undef la_causal_tile
#undef la_causal_tiles
#undef la_chain_key
#undef la_chain_load
#undef la_chain_store
#undef la_choose
#undef la_chunk
#undef la_chunk_inputs
#undef la_chunk_made
#undef la_clamp
#undef la_clear
#undef la_clear_columns
#undef la_clear_padding
#undef la_column
#undef la_columns
#undef la_coordinates
#undef la_copy
#undef la_current
#undef la_dadd
#undef la_ddiv
#undef la_denominator
#undef la_dflush
#undef la_dfma
#undef la_dgt
#undef la_div
#undef la_dload
#undef la_dmax
#undef la_dmul
#undef la_double_exp
#undef la_dscale
#undef la_dset1
#undef la_dstore
#undef la_dsub
#undef la_dwiden
#undef la_edge_begin
#undef la_edge_end
#undef la_edge_rows
#undef la_elements
#undef la_end_rows
#undef la_eq
#undef la_exact_block
#undef la_exact_end
#undef la_exact_head
#undef la_exact_keys
#undef la_exact_lanes
#undef la_exact_outputs
#undef la_exact_queries
#undef la_exact_shrink
#undef la_exp_core
#undef la_exp_end
#undef la_exp_full
#undef la_exp_negative
#undef la_exponent
#undef la_factor
#undef la_fetch_next
#undef la_fetch_nexts
#undef la_few_added
#undef la_few_alone
#undef la_few_block
#undef la_few_chains
#undef la_few_keys
#undef la_few_one
#undef la_few_outputs
#undef la_few_places
#undef la_few_query
#undef la_few_rows
#undef la_few_scores
#undef la_few_several
#undef la_few_tile
#undef la_few_values
#undef la_few_weigh
#undef la_fewer
#undef la_finish
#undef la_first
#undef la_flatten
#undef la_flush
#undef la_fma
#undef la_fma_hot
#undef la_fma_of
#undef la_fma_where
#undef la_fms
#undef la_fnma
#undef la_fold
#undef la_fold_vector
#undef la_fold_vectors
#undef la_four_by_four
#undef la_four_columns
#undef la_fours
#undef la_group_columns
#undef la_gt
#undef la_half
#undef la_half_at
#undef la_half_begin
#undef la_half_copy
#undef la_half_filled
#undef la_half_finish
#undef la_half_get
#undef la_half_get_any
#undef la_half_lanes
#undef la_half_open
#undef la_half_put
#undef la_half_put_any
#undef la_half_read
#undef la_half_rows
#undef la_half_token
#undef la_half_wide
#undef la_head
#undef la_high
#undef la_inputs
#undef la_inverse
#undef la_inverse_end
#undef la_invert
#undef la_is_beyond
#undef la_is_small
#undef la_iterate
#undef la_join_high
#undef la_join_low
#undef la_kept_alike
#undef la_kept_signs
#undef la_key_exponent
#undef la_key_rows
#undef la_keep_keys
#undef la_keys
#undef la_keys_rest
#undef la_keys_vectors
#undef la_lanes
#undef la_lanes_left
#undef la_ldexp
#undef la_le
#undef la_level
#undef la_lists
#undef la_load
#undef la_load_columns
#undef la_load_most
#undef la_load_part
#undef la_map
#undef la_map_columns
#undef la_map_features
#undef la_map_pairs
#undef la_map_softmax
#undef la_map_unit
#undef la_map_vector
#undef la_made
#undef la_masked_tokens
#undef la_mass
#undef la_max
#undef la_max16
#undef la_mean_component
#undef la_mean_row
#undef la_mean_vectors
#undef la_means
#undef la_measure
#undef la_merge
#undef la_merge_row
#undef la_min
#undef la_mirror
#undef la_monomials
#undef la_most
#undef la_moves
#undef la_moving
#undef la_mul
#undef la_multiply
#undef la_multiply_few
#undef la_multiply_pairs
#undef la_narrow
#undef la_normal
#undef la_norms
#undef la_negative
#undef la_odd
#undef la_offset
#undef la_once
#undef la_once_alone
#undef la_once_columns
#undef la_once_decay
#undef la_once_decays
#undef la_once_each
#undef la_once_flush
#undef la_once_gate
#undef la_once_head
#undef la_once_map
#undef la_once_mlstm
#undef la_once_multiplied
#undef la_once_outputs
#undef la_once_pairs
#undef la_once_powers
#undef la_once_rarely
#undef la_once_read
#undef la_once_rows
#undef la_once_tile
#undef la_once_tiles
#undef la_once_usual
#undef la_once_values
#undef la_once_weigh
#undef la_outer
#undef la_outer_single
#undef la_outer_tile
#undef la_outer_wide
#undef la_pack
#undef la_pair_places
#undef la_panel_exp
#undef la_panel_lanes
#undef la_panel_part
#undef la_panel_phi
#undef la_panel_rows
#undef la_panel_step
#undef la_panel_token
#undef la_panels
#undef la_part
#undef la_part_add
#undef la_part_clear
#undef la_part_middle
#undef la_part_signs
#undef la_past_divides
#undef la_past_factors
#undef la_past_run
#undef la_past_weights
#undef la_past_z
#undef la_peak
#undef la_peaks
#undef la_phi_key
#undef la_phi_query
#undef la_pick
#undef la_pick_all
#undef la_picked
#undef la_place
#undef la_place_lanes
#undef la_places
#undef la_plain
#undef la_polynomials
#undef la_power
#undef la_product
#undef la_product_rows
#undef la_product_tile
#undef la_project
#undef la_project_tokens
#undef la_projection
#undef la_put_columns
#undef la_put_kept
#undef la_put_values
#undef la_query
#undef la_query_block
#undef la_query_tile
#undef la_raise
#undef la_read_columns
#undef la_read_tiles
#undef la_reciprocal
#undef la_recurrent
#undef la_reduce
#undef la_rescale
#undef la_rescale_row
#undef la_residual
#undef la_round
#undef la_rows
#undef la_rule
#undef la_rule_afresh
#undef la_rule_after
#undef la_rule_alike
#undef la_rule_are_few
#undef la_rule_begin
#undef la_rule_block
#undef la_rule_chunk
#undef la_rule_columns
#undef la_rule_columns_of
#undef la_rule_correct
#undef la_rule_credit
#undef la_rule_debts
#undef la_rule_decay
#undef la_rule_decay_rows
#undef la_rule_decayed
#undef la_rule_decays
#undef la_rule_due
#undef la_rule_due_rows
#undef la_rule_due_tokens
#undef la_rule_end
#undef la_rule_exponents
#undef la_rule_factors
#undef la_rule_fetch
#undef la_rule_finish
#undef la_rule_floor
#undef la_rule_flush
#undef la_rule_flush_rows
#undef la_rule_fold
#undef la_rule_fold_vector
#undef la_rule_gate
#undef la_rule_gates
#undef la_rule_half
#undef la_rule_halves
#undef la_rule_head
#undef la_rule_heads
#undef la_rule_is_once
#undef la_rule_is_plain
#undef la_rule_keys
#undef la_rule_kind
#undef la_rule_lanes
#undef la_rule_ldexp
#undef la_rule_lead
#undef la_rule_left
#undef la_rule_map
#undef la_rule_normalise
#undef la_rule_normalise_rows
#undef la_rule_once
#undef la_rule_ones
#undef la_rule_open
#undef la_rule_out
#undef la_rule_owe
#undef la_rule_owe_each
#undef la_rule_owe_rows
#undef la_rule_owed_each
#undef la_rule_padding
#undef la_rule_past
#undef la_rule_past_end
#undef la_rule_pay
#undef la_rule_pay_rows
#undef la_rule_powers
#undef la_rule_prepare
#undef la_rule_queries
#undef la_rule_quiet
#undef la_rule_read
#undef la_rule_read1
#undef la_rule_read4
#undef la_rule_read_rows
#undef la_rule_read_tile
#undef la_rule_reads
#undef la_rule_row
#undef la_rule_row_owed
#undef la_rule_rows
#undef la_rule_rows_of
#undef la_rule_rows_together
#undef la_rule_scale
#undef la_rule_second
#undef la_rule_settle
#undef la_rule_several
#undef la_rule_size
#undef la_rule_span
#undef la_rule_single
#undef la_rule_singles
#undef la_rule_spend
#undef la_rule_spend_rows
#undef la_rule_spends
#undef la_rule_split
#undef la_rule_spread
#undef la_rule_stabilise
#undef la_rule_share
#undef la_rule_tile
#undef la_rule_tile1
#undef la_rule_tile2
#undef la_rule_tile3
#undef la_rule_tile4
#undef la_rule_together
#undef la_rule_tokens
#undef la_rule_tokens1
#undef la_rule_tokens2
#undef la_rule_tokens4
#undef la_rule_turn
#undef la_rule_values
#undef la_rule_weigh
#undef la_rule_weigh_most
#undef la_rule_weigh_queries
#undef la_rule_weigh_rows
#undef la_rule_weighed
#undef la_rule_width
#undef la_rule_z_map
#undef la_run
#undef la_scalable
#undef la_scale
#undef la_scale_rows
#undef la_scaled_row
#undef la_score_chains
#undef la_score_step
#undef la_scores
#undef la_scores_of
#undef la_scratch
#undef la_seen
#undef la_segment
#undef la_segments
#undef la_select
#undef la_set1
#undef la_settle
#undef la_shift
#undef la_shrink
#undef la_small_factor
#undef la_small_heads
#undef la_small_key
#undef la_small_keys
#undef la_small_norm
#undef la_small_other
#undef la_small_out
#undef la_small_phi
#undef la_small_rows
#undef la_small_step
#undef la_small_terms
#undef la_small_token
#undef la_softmax
#undef la_softmax_columns
#undef la_split
#undef la_sqrt
#undef la_square
#undef la_square_run
#undef la_squared
#undef la_squares
#undef la_stage
#undef la_stage_begin
#undef la_stage_end
#undef la_stage_key
#undef la_stage_rest
#undef la_stage_vectors
#undef la_stage_wide
#undef la_step
#undef la_step_alone
#undef la_step_both
#undef la_step_chunk
#undef la_step_end
#undef la_step_finish
#undef la_step_halves
#undef la_step_heads
#undef la_step_lone
#undef la_step_make
#undef la_step_map
#undef la_step_one
#undef la_step_order
#undef la_step_others
#undef la_step_padding
#undef la_step_part
#undef la_step_parts
#undef la_step_past
#undef la_step_phi
#undef la_step_query
#undef la_step_read
#undef la_step_roots
#undef la_step_rows
#undef la_step_some
#undef la_step_tile
#undef la_step_tiled
#undef la_step_token
#undef la_step_twice
#undef la_step_two
#undef la_step_update
#undef la_step_vectors
#undef la_step_walk
#undef la_step_whole
#undef la_store
#undef la_store_columns
#undef la_store_few
#undef la_store_part
#undef la_sub
#undef la_sum16
#undef la_sum_of
#undef la_summed_factor
#undef la_sums16
#undef la_symmetric
#undef la_table
#undef la_take
#undef la_take_keys
#undef la_take_others
#undef la_take_reads
#undef la_take_run
#undef la_tanh
#undef la_tile
#undef la_tile_begin
#undef la_tile_end
#undef la_tile_fetch
#undef la_tiles
#undef la_times
#undef la_tiny
#undef la_token
#undef la_tokens
#undef la_trace
#undef la_transpose
#undef la_turn
#undef la_twice_tile
#undef la_two_sum
#undef la_unit
#undef la_unit_of
#undef la_unit_root
#undef la_unordered
#undef la_untame
#undef la_update
#undef la_update_block
#undef la_update_columns
#undef la_update_few
#undef la_update_run
#undef la_update_vectors
#undef la_upheld
#undef la_values
#undef la_visible
#undef la_weigh
#undef la_weigh_vectors
#undef la_weigh_query
#undef la_weighed
#undef la_wide
#undef la_wide_eight
#undef la_widen
#undef la_widen_row
#undef la_widened
#undef la_zero
#undef la_zip_high
#undef la_zip_low
#undef la_vec
#undef la_mask
#undef la_dvec
#undef LA_COMMON
#undef LA_COLD
#undef LA_HOT
#undef LA_WALK
#undef LA_SAME_PLACE
#undef LA_SHARED
#undef LA_OF
#undef LA_HALF
#undef LA_LANES
#undef LA_MAKES
#undef LA_VECTOR
#undef LA_VECTORS
#undef LA_WIDEST
#undef LA_EITHER
#undef LA_MEAN_VECS
#undef LA_MOST
#undef LA_QUERIES
#undef LA_OWED
#undef LA_ONCE
#undef LA_ONCE_COLUMNS
#undef LA_WITHIN
#undef LA_ACCUMULATORS
#undef LA_ALL
#undef LA_ALONG
#undef LA_BEFORE
#undef LA_BEGUN
#undef LA_BETWEEN
#undef LA_BEYOND
#undef LA_BLOCK
#undef LA_BY_SIGN
#undef LA_CAUSAL_FEW
#undef LA_CAUSAL_TALL
#undef LA_CAUSAL_TOKENS
#undef LA_CAUSAL_VECS
#undef LA_CAUSAL_WIDE
#undef LA_CHAINS
#undef LA_CHAIN_LANES
#undef LA_CHAIN_VECS
#undef LA_CLASH
#undef LA_COMPARE
#undef LA_CONSTANTS
#undef LA_COPIED
#undef LA_DECAY_ROWS
#undef LA_DELTA
#undef LA_DW
#undef LA_EACH_OWED
#undef LA_EACH_VEC
#undef LA_EXACT_LANES
#undef LA_EXACT_ROW
#undef LA_EXACT_TILES
#undef LA_EXACT_VECS
#undef LA_FETCHES_APART
#undef LA_FEW
#undef LA_FEW_ALONE
#undef LA_FEW_KEYS
#undef LA_FEW_QUERIES
#undef LA_FEW_REST
#undef LA_FEW_TOGETHER
#undef LA_FEW_VECS
#undef LA_GATED_TOKENS
#undef LA_GATED_VECS
#undef LA_GENERAL
#undef LA_GENERAL_VECS
#undef LA_GROUP_TOKENS
#undef LA_HALF_VECS
#undef LA_HALF_WIDTH
#undef LA_KEY_PARAMS
#undef LA_LEVEL_BEGIN
#undef LA_LISTS
#undef LA_LIST_ROW
#undef LA_LOAD_LANE
#undef LA_LONE_VECS
#undef LA_NORMAL
#undef LA_ONE
#undef LA_ONES
#undef LA_OP
#undef LA_OWED_ROWS
#undef LA_PANEL_VECS
#undef LA_PART
#undef LA_PART_ROW
#undef LA_PART_TOKENS
#undef LA_PICK
#undef LA_PLACE_ROW
#undef LA_PLAIN_DELTA
#undef LA_QUERY_FEW
#undef LA_QUERY_TALL
#undef LA_QUERY_TOKENS
#undef LA_QUERY_VECS
#undef LA_READ
#undef LA_RECIPROCAL
#undef LA_ROW
#undef LA_RULE_FEW
#undef LA_RULE_FLOATS
#undef LA_RULE_GROUPS
#undef LA_RULE_ROWS
#undef LA_RULE_TOKENS
#undef LA_RULE_WIDE
#undef LA_SLEEF
#undef LA_SCORES
#undef LA_SCORE_CHAINS
#undef LA_SCORE_ROWS
#undef LA_SINGLE_VECS
#undef LA_SMALL
#undef LA_SQUARES
#undef LA_SQUARES_TOKENS
#undef LA_STAGE_PAIR
#undef LA_STAGE_VECS
#undef LA_STEP
#undef LA_STEP_UPDATE
#undef LA_STORE_FEW
#undef LA_STORE_LANE
#undef LA_SUMS16
#undef LA_SURELY
#undef LA_TABLE
#undef LA_TILE
#undef LA_TILE_COLUMNS
#undef LA_TILE_COPIES
#undef LA_TILE_HEADS
#undef LA_TILE_KEYS
#undef LA_TILE_TOKENS
#undef LA_TILED_STEP
#undef LA_TWICE_VECS
#undef LA_UPDATE_ROWS
#undef LA_UPDATE_TALL
#undef LA_UPDATE_VECS
#undef LA_W
#undef LA_WIDE_TOKENS
#undef LA_WRITE
